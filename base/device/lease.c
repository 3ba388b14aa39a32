#include "base/device/lease.h"

#include "base/threads.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* --- tokens --------------------------------------------------------------- */

enum zd_status timeline_create(struct timeline *timeline_out)
{
    *timeline_out = (struct timeline){0};
    return event_create(&timeline_out->event);
}

void timeline_destroy(struct timeline *timeline)
{
    event_destroy(timeline->event);
    *timeline = (struct timeline){0};
}

struct token timeline_next(struct timeline *timeline)
{
    return (struct token){timeline, ++timeline->asked};
}

struct token timeline_last(struct timeline *timeline)
{
    return (struct token){timeline, timeline->asked};
}

enum zd_status timeline_record(
        struct stream *stream, struct timeline *timeline,
        struct token *token_out)
{
    struct token token = timeline_next(timeline);
    ZD_TRY(stream_record(stream, timeline->event));
    *token_out = token;
    return ZD_OK;
}

enum zd_status token_wait(struct stream *stream, struct token token)
{
    struct timeline *of = token.of;
    if (!token.number)
        return ZD_OK;
    assert(of && (!of->event || event_records(of->event) <= token.number) &&
           "a GPU would wait for the next record");
    return of->wait ? of->wait(of, token.number, stream)
                    : stream_wait_record(stream, of->event, token.number);
}

static enum zd_status wait_tally(
        struct timeline *timeline, uint64_t number, struct stream *stream)
{
    struct tally *tally = (struct tally *)timeline;
    (void)stream;
    ZD_LOCKED(&tally->lock);
    while (tally->done < number)
        pthread_cond_wait(&tally->changed, &tally->lock);
    return ZD_OK;
}

void tally_init(struct tally *tally)
{
    *tally = (struct tally){.timeline = {.wait = wait_tally}};
    pthread_mutex_init(&tally->lock, NULL);
    pthread_cond_init(&tally->changed, NULL);
}

void tally_fini(struct tally *tally)
{
    pthread_cond_destroy(&tally->changed);
    pthread_mutex_destroy(&tally->lock);
}

struct token tally_token(struct tally *tally, uint64_t number)
{
    return (struct token){&tally->timeline, number};
}

void tally_done(struct tally *tally, uint64_t number)
{
    ZD_LOCKED(&tally->lock);
    assert(number >= tally->done);
    tally->done = number;
    pthread_cond_broadcast(&tally->changed);
}

void tally_next(struct tally *tally)
{
    ZD_LOCKED(&tally->lock);
    tally->done++;
    pthread_cond_broadcast(&tally->changed);
}

/* --- transitions ---------------------------------------------------------- */

static const char *const state_names[] = {
        "free", "filling", "ready", "in use", "leaving"};
static const char *const use_names[] = {"FILL", "CHANGE", "READ"};

void lease_init(struct lease *lease, const char *name, int index)
{
    *lease = (struct lease){.name = name, .index = index};
}

bool lease_is(const struct lease *lease, enum lease_state state)
{
    return lease->state == state;
}

static void check(
        struct lease *lease, bool is_legal, const char *what, const char *who)
{
#ifndef NDEBUG
    if (is_legal)
        return;
    fprintf(stderr, "lease \"%s\" %d: %s by \"%s\" while %s\n", lease->name,
            lease->index, what, who, state_names[lease->state]);
    abort();
#endif
}

static void collect(
        struct lease_tokens *tokens, const struct token *from, int count)
{
    for (int i = 0; i < count; i++)
        tokens->token[tokens->count++] = from[i];
}

struct lease_tokens lease_acquire(
        struct lease *lease, enum lease_use use, const char *who)
{
    struct lease_tokens tokens = {0};
    enum lease_state state = lease->state;
    bool is_legal = use == LEASE_FILL
                            ? state == LEASE_FREE || state == LEASE_LEAVING
                    : use == LEASE_CHANGE
                            ? state == LEASE_READY
                            : state == LEASE_READY || state == LEASE_IN_USE;
    check(lease, is_legal, use_names[use], who);
    collect(&tokens, lease->written, lease->written_count);
    if (use == LEASE_READ) {
        lease->state = LEASE_IN_USE;
        lease->readers++;
        return tokens;
    }
    collect(&tokens, lease->read, lease->read_count);
    lease->written_count = lease->read_count = 0;
    lease->state = LEASE_FILLING;
    return tokens;
}

/* A later record of an event stands for the earlier ones. */
void lease_note(struct lease *lease, struct token token)
{
    bool writes = lease->state == LEASE_FILLING;
    struct token *tokens = writes ? lease->written : lease->read;
    int *count = writes ? &lease->written_count : &lease->read_count;
    if (!token.number)
        return;
    for (int i = 0; i < *count; i++)
        if (token.of->event && tokens[i].of == token.of) {
            tokens[i] = token;
            return;
        }
    if (*count == LEASE_TOKENS) {
        check(lease, false, "one token too many", "");
        abort();
    }
    tokens[(*count)++] = token;
}

void lease_release(struct lease *lease, struct token token)
{
    bool is_held = lease->state == LEASE_FILLING || lease->readers > 0;
    lease_note(lease, token);
    check(lease, is_held, "release", "");
    if (lease->state == LEASE_IN_USE && --lease->readers > 0)
        return;
    lease->state = LEASE_READY;
}

static enum zd_status wait_all(
        const struct lease_tokens *tokens, struct stream *stream)
{
    for (int i = 0; i < tokens->count; i++)
        ZD_TRY(token_wait(stream, tokens->token[i]));
    return ZD_OK;
}

enum zd_status lease_take(
        struct lease *lease, enum lease_use use, const char *who,
        struct stream *stream)
{
    struct lease_tokens tokens = lease_acquire(lease, use, who);
    return wait_all(&tokens, stream);
}

void lease_drop(struct lease *lease, const char *who)
{
    check(lease, lease->state == LEASE_READY, "drop", who);
    lease->state = LEASE_LEAVING;
}

enum zd_status lease_yield(
        struct lease *lease, const char *who, struct stream *stream)
{
    struct lease_tokens tokens = {0};
    check(lease, lease->state == LEASE_FREE || lease->state == LEASE_LEAVING,
          "yield", who);
    collect(&tokens, lease->written, lease->written_count);
    collect(&tokens, lease->read, lease->read_count);
    lease_settle(lease);
    return wait_all(&tokens, stream);
}

void lease_settle(struct lease *lease)
{
    check(lease, lease->state != LEASE_FILLING, "settle", "");
    lease->written_count = lease->read_count = 0;
    if (lease->state == LEASE_LEAVING)
        lease->state = LEASE_FREE;
}
