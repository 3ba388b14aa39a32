/* Tokenizing with several threads. Each takes the next unit, tokenizes it, and
 * hands its words on once those of every unit before have been:
 *
 *   thread 1   take 0 | tokenize 0     | hand on 0 | take 3 ...
 *   thread 2     take 1 | tokenize 1 | wait | hand on 1 | ...
 *   thread 3       take 2 | tokenize 2  | wait | hand on 2 | ...
 *
 * Units are taken, and words handed on, under one mutex. The first failing unit
 * in their order is the one reported, so neither result nor error depends on
 * how many threads there are. */
#include "data/tokenize.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/must.h"
#include "base/threads.h"
#include "data/stream.h"

#include <sys/resource.h>
#include <unistd.h>

enum { KEEP_BYTES = 1 << 20, IN_FLIGHT_BYTES = 16 << 20, THREADS_MAX = 64 };

struct pipeline {
    struct tokenize_run *run;
    pthread_mutex_t mutex; /* guards everything below */
    pthread_cond_t moved;  /* a unit was handed on */
    struct unit_reader reader;
    bool ends;             /* no unit is taken any more */
    int64_t taken, handed; /* units */
    size_t in_flight;      /* bytes of units taken and not handed on */
    bool has_long;         /* one of them is longer than units are */
    size_t words;          /* handed on */
    time_t next_report;    /* 0: none yet */
    struct zd_error error; /* of the first unit that failed */
};

struct worker {
    struct tokenize_worker of;
    int64_t number;        /* of its unit */
    struct zd_error error; /* ZD_OK when its words are good */
    bool has_stepped_back;
};

static void keep_error(struct zd_error *error)
{
    *error = *zd_error_get();
    zd_error_clear();
}

/* Training has the processors first, and nothing to do until it has data. */
static void step_back(const struct pipeline *p, struct worker *w)
{
    enum { FIRST_WORDS = 4 << 20 };
    if (!p->run->long_record || p->words < FIRST_WORDS || w->has_stepped_back)
        return;
    setpriority(PRIO_PROCESS, (id_t)gettid(), 10);
    w->has_stepped_back = true;
}

/* false: there is no more. */
static bool take_unit(struct pipeline *p, struct worker *w)
{
    struct unit *unit = &w->of.unit;
    bool more = false;
    pthread_mutex_lock(&p->mutex);
    while (!p->ends && (p->in_flight >= IN_FLIGHT_BYTES || p->has_long))
        pthread_cond_wait(&p->moved, &p->mutex);
    if (!p->ends) {
        bool failed = unit_read(&p->reader, unit, &more) != ZD_OK;
        if (failed) { /* told in its turn: a unit before may fail too */
            keep_error(&w->error);
            unit->bytes = 0;
        }
        p->ends = failed || !more;
        more |= failed;
    }
    if (more) {
        w->number = p->taken++;
        p->in_flight += unit->bytes;
        step_back(p, w);
        /* a long record takes memory that is planned once: in its turn, so that
         * who has it waits for no other */
        p->has_long = p->run->long_record && unit->bytes > UNIT_BYTES;
        while (p->has_long && p->handed != w->number)
            pthread_cond_wait(&p->moved, &p->mutex);
    }
    bool is_long = p->has_long;
    pthread_mutex_unlock(&p->mutex);
    if (more && is_long)
        pthread_mutex_lock(p->run->long_record);
    return more;
}

/* Progress for people: a line every few seconds of a long file. */
static void report(struct pipeline *p, const struct unit *unit)
{
    const struct file_list *list = p->run->list;
    const time_t interval = p->run->long_record ? 60 : 5;
    uint64_t done = unit->consumed, total = 0;
    const time_t now = (time_t)clock_seconds();
    for (const struct data_file *f = list->files; f < unit->file; f++)
        done += f->bytes;
    for (int i = 0; i < list->count; i++)
        total += list->files[i].bytes;
    if (now < p->next_report)
        return;
    if (p->next_report)
        zd_log_info(
                "tokenizing: %.0f of %.0f MB", (double)done / 1e6,
                (double)total / 1e6);
    p->next_report = now + interval;
}

static void hand_on(struct pipeline *p, struct worker *w)
{
    struct tokenize_run *run = p->run;
    const struct unit *unit = &w->of.unit;
    const struct token_vector *words = &w->of.words;
    ZD_LOCKED(&p->mutex);
    while (p->handed != w->number)
        pthread_cond_wait(&p->moved, &p->mutex);
    if (p->error.status == ZD_OK && w->error.status == ZD_OK) {
        report(p, unit);
        row_notes_append(&run->notes, &w->of.notes);
        enum zd_status status =
                run->sink(run->ctx, (const uint32_t *)words->ids, words->count);
        if (status != ZD_OK)
            keep_error(&w->error);
        w->error.status = status; /* enough is no error */
        p->words += words->count;
    }
    if (p->error.status == ZD_OK)
        p->error = w->error;
    p->ends |= p->error.status != ZD_OK;
    p->in_flight -= unit->bytes;
    p->handed++;
    if (p->has_long && unit->bytes > UNIT_BYTES) {
        pthread_mutex_unlock(run->long_record);
        p->has_long = false;
    }
    pthread_cond_broadcast(&p->moved);
}

/* Memory of an unusually long document goes back at once. */
static void trim(struct tokenize_worker *w)
{
    if (w->unit.capacity > KEEP_BYTES)
        unit_fini(&w->unit);
    if (w->words.capacity * sizeof *w->words.ids > KEEP_BYTES)
        token_vector_fini(&w->words);
    w->words.count = 0;
}

static void *work(void *argument)
{
    struct pipeline *p = argument;
    struct worker w = {0};
    tokenize_worker_init(&w.of, &p->run->recipe);
    while (take_unit(p, &w)) {
        if (w.error.status == ZD_OK && tokenize_unit(&w.of) != ZD_OK)
            keep_error(&w.error);
        hand_on(p, &w);
        trim(&w.of);
    }
    tokenize_worker_fini(&w.of);
    return NULL;
}

/* Read past the units whose words are there. */
static enum zd_status skip_units(struct pipeline *p)
{
    ZD_SCOPED(unit_fini) struct unit unit = {0};
    bool more = true;
    for (int64_t i = 0; i < p->run->units && more; i++)
        ZD_TRY(unit_read(&p->reader, &unit, &more));
    return ZD_OK;
}

enum zd_status tokenize_files(struct tokenize_run *run)
{
    pthread_t ids[THREADS_MAX];
    struct pipeline p = {
            .run = run,
            .reader = {
                    .list = run->list,
                    .tokenizer = run->recipe.tokenizer,
                    .most = run->long_record ? GROWTH_RECORD_BYTES
                                             : RECORD_MAX_BYTES,
                    .file = -1}};
    int threads = run->threads < THREADS_MAX ? run->threads : THREADS_MAX;
    int started = 0;
    if (skip_units(&p) != ZD_OK) {
        unit_reader_fini(&p.reader);
        return zd_error_get()->status;
    }
    pthread_mutex_init(&p.mutex, NULL);
    pthread_cond_init(&p.moved, NULL);
    while (started < threads &&
           thread_start(&ids[started], "zerod-text", work, &p) == 0)
        started++;
    for (int i = 0; i < started; i++)
        pthread_join(ids[i], NULL);
    unit_reader_fini(&p.reader);
    pthread_mutex_destroy(&p.mutex);
    pthread_cond_destroy(&p.moved);
    if (started == 0)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "cannot start a thread to tokenize");
    if (p.error.what[0])
        zd_error_set(&p.error);
    return p.error.status;
}
