#include "base/device/lease.h"
#include "tests/support/gate.h"
#include "tests/support/must.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct lease lease;

static void setup(void)
{
    lease_init(&lease, "test", 0);
}

TestSuite(lease, .init = setup);

static struct token ticket(uint64_t number)
{
    static struct tally jobs;
    return tally_token(&jobs, number);
}

static const struct token none;

static void fill(struct token token)
{
    lease_acquire(&lease, LEASE_FILL, "filler");
    lease_release(&lease, token);
}

static void consume(struct token token)
{
    lease_acquire(&lease, LEASE_READ, "reader");
    lease_release(&lease, token);
}

Test(lease, a_reader_waits_for_the_writer_and_a_writer_for_all)
{
    struct lease_tokens tokens = lease_acquire(&lease, LEASE_FILL, "filler");
    cr_expect_eq(tokens.count, 0);
    lease_note(&lease, ticket(7));
    lease_release(&lease, ticket(8));
    for (uint64_t reader = 0; reader < 2; reader++) {
        tokens = lease_acquire(&lease, LEASE_READ, "reader");
        cr_assert_eq(tokens.count, 2);
        cr_expect_eq(tokens.token[0].number, 7);
        cr_expect_eq(tokens.token[1].number, 8);
        lease_release(&lease, ticket(20 + reader));
    }
    lease_drop(&lease, "reader");
    tokens = lease_acquire(&lease, LEASE_FILL, "filler");
    cr_assert_eq(tokens.count, 4);
    cr_expect_eq(tokens.token[3].number, 21);
    lease_release(&lease, ticket(30));
    tokens = lease_acquire(&lease, LEASE_READ, "reader");
    cr_assert_eq(tokens.count, 1);
    cr_expect_eq(tokens.token[0].number, 30);
}

Test(lease, a_change_waits_for_all_and_keeps_the_content)
{
    fill(ticket(1));
    consume(ticket(2));
    struct lease_tokens tokens = lease_acquire(&lease, LEASE_CHANGE, "update");
    cr_expect_eq(tokens.count, 2);
    lease_release(&lease, ticket(3));
    cr_expect(lease_is(&lease, LEASE_READY));
    cr_expect_eq(lease_acquire(&lease, LEASE_READ, "reader").count, 1);
}

Test(lease, readers_hold_it_until_the_last_has_released)
{
    fill(none);
    lease_acquire(&lease, LEASE_READ, "one");
    lease_acquire(&lease, LEASE_READ, "other");
    lease_release(&lease, none);
    cr_expect(lease_is(&lease, LEASE_IN_USE));
    lease_release(&lease, none);
    cr_expect(lease_is(&lease, LEASE_READY));
}

Test(lease, a_token_is_forgotten_after_its_wait)
{
    fill(ticket(1));
    lease_settle(&lease);
    cr_expect(lease_is(&lease, LEASE_READY));
    cr_expect_eq(lease_acquire(&lease, LEASE_READ, "reader").count, 0);
    lease_release(&lease, ticket(2));
    lease_drop(&lease, "reader");
    lease_settle(&lease);
    cr_expect(lease_is(&lease, LEASE_FREE));
    cr_expect_eq(lease_acquire(&lease, LEASE_FILL, "filler").count, 0);
}

Test(lease, a_later_record_of_an_event_stands_for_the_earlier)
{
    struct timeline timeline;
    struct token token;
    MUST(timeline_create(&timeline));
    fill(none);
    for (int i = 0; i < 2 * LEASE_TOKENS; i++) {
        MUST(timeline_record(NULL, &timeline, &token));
        consume(token);
    }
    lease_drop(&lease, "reader");
    struct lease_tokens tokens = lease_acquire(&lease, LEASE_FILL, "filler");
    cr_assert_eq(tokens.count, 1);
    cr_expect_eq(tokens.token[0].number, 2 * LEASE_TOKENS);
    timeline_destroy(&timeline);
}

/* --- mistakes ------------------------------------------------------------- */

/* What is done wrong after `good`: letters of the calls. */
static void play(const char *calls)
{
    for (; *calls; calls++)
        switch (*calls) {
        case 'f':
            lease_acquire(&lease, LEASE_FILL, "filler");
            break;
        case 'c':
            lease_acquire(&lease, LEASE_CHANGE, "changer");
            break;
        case 'r':
            lease_acquire(&lease, LEASE_READ, "reader");
            break;
        case '.':
            lease_release(&lease, ticket(1));
            break;
        case 'd':
            lease_drop(&lease, "dropper");
            break;
        case 's':
            lease_settle(&lease);
            break;
        }
}

/* What a process says that plays them and ends by SIGABRT; false: it does not.
 */
static bool ends(const char *calls, char said[4096])
{
    int ends[2], code;
    cr_assert_eq(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 2);
        lease_init(&lease, "test", 5);
        play(calls);
        _exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t got = 1; got > 0; used += (size_t)got)
        got = read(ends[0], said + used, 4095 - used);
    said[used] = '\0';
    close(ends[0]);
    cr_assert_eq(waitpid(pid, &code, 0), pid);
    return WIFSIGNALED(code) && WTERMSIG(code) == SIGABRT;
}

Test(lease, an_unknown_transition_aborts)
{
    static const char *const wrong[] = {
            "r",    "c",    "d",     ".",     "ff",
            "fr",   "fc",   "fd",    "f.f",   "f..",
            "fs",   "f.rf", "f.rc",  "f.rd",  "f.dr",
            "f.dc", "f.dd", "f.r..", "f.ds.", "f.r.r.r.r.r.r.r.",
    };
    static const char *const right[] = {
            "f.rr..dsf.", "f.c.c.r.df.", "f.df.", "f.s", "f.rs.", "f.dsf.",
    };
    char said[4096];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        cr_expect(ends(wrong[i], said), "%s", wrong[i]);
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++)
        cr_expect(!ends(right[i], said), "%s: %s", right[i], said);
}

Test(lease, a_mistake_prints_what_was_wrong)
{
    char said[4096];
    cr_assert(ends("f.r.r.df.f", said));
    cr_expect(
            strncmp(said, "lease \"test\" 5: FILL by \"filler\" while ready\n",
                    43) == 0,
            "%s", said);
}

/* --- records -------------------------------------------------------------- */

/* A wait is for the record that it names: not for a later one, which has been
 * queued meanwhile, and also for one that is queued later. */
Test(lease, a_wait_is_for_its_record, .timeout = 60)
{
    struct gate gate = GATE;
    struct stream *down, *up;
    struct timeline first, second;
    struct token token;
    int from = 1, to = 0;
    MUST(stream_create("down", STREAM_THREAD, &down));
    MUST(stream_create("up", STREAM_THREAD, &up));
    MUST(timeline_create(&first));
    MUST(timeline_create(&second));

    MUST(timeline_record(down, &first, &token));
    cr_expect_eq(token.number, 1);
    stream_call(down, gate_pass, &gate, 0);
    stream_record(down, first.event); /* held */
    cr_expect_eq(event_records(first.event), 2);
    MUST(stream_wait_record(up, token.of->event, 1));
    MUST(stream_finish(up));
    cr_expect(!event_is_done(first.event));

    struct token later = timeline_next(&second);
    cr_expect_eq(event_records(second.event), 0);
    MUST(token_wait(up, later));
    stream_copy(up, &to, &from, sizeof to);
    stream_record(down, second.event);
    gate_open(&gate);
    MUST(stream_finish(up));
    cr_expect_eq(to, 1);
    stream_destroy(down);
    stream_destroy(up);
    timeline_destroy(&first);
    timeline_destroy(&second);
}

/* A GPU's event knows its last record alone: who comes to wait for an earlier
 * one would wait too long. */
Test(lease, a_wait_after_the_next_record_is_a_mistake, .signal = SIGABRT)
{
    struct timeline timeline;
    struct token first, second;
    MUST(timeline_create(&timeline));
    MUST(timeline_record(NULL, &timeline, &first));
    MUST(token_wait(NULL, first));
    MUST(timeline_record(NULL, &timeline, &second));
    token_wait(NULL, first);
}
