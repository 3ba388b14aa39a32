/* Tokenizing with several threads. The calling thread reads units into slots
 * and takes finished ones out, both in order; workers tokenize those
 * between:
 *
 *   slots:   | done | claimed | done | filled | empty |
 *              ^ taken           claimed ^      ^ filled
 *
 * A unit's words are handed on only after those of every unit before it, and
 * the first failing unit in that order is the one reported, so neither result
 * nor error depends on how many threads there are. */
#include "data/tokenize.h"

#include "base/log.h"
#include "base/must.h"
#include "base/threads.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { KEEP_BYTES = 1 << 20, IN_FLIGHT_BYTES = 16 << 20, THREADS_MAX = 64 };

struct slot {
    bool is_done; /* by a worker, and not taken yet */
    struct unit unit;
    struct token_vector words;
    struct row_notes notes;
    struct zd_error error; /* ZD_OK when the words are good */
};

struct pipeline {
    const struct tokenize_run *run;
    /* the calling thread's: */
    bool more;          /* units to be read */
    size_t in_flight;   /* bytes of units read and not taken */
    size_t words;       /* handed on */
    time_t next_report; /* 0: none yet */
    pthread_mutex_t mutex; /* guards everything below; a slot's content is its
                              worker's from when it is claimed until it is
                              done, else the calling thread's */
    pthread_cond_t ready, done;
    bool stopping, steps_back;
    struct slot *slots;
    int slot_count;
    int64_t filled, taken; /* units, ever */
    int64_t claimed;       /* units given to workers, ever */
};

/* Training has the processors first, and nothing to do until it has data. */
static void step_back(bool *has)
{
    if (!*has)
        setpriority(PRIO_PROCESS, (id_t)gettid(), 10);
    *has = true;
}

static void work_on(struct tokenize_worker *worker, struct slot *slot)
{
    if (slot->error.status != ZD_OK)
        return; /* it could not even be read */
    if (tokenize_unit(worker, &slot->unit, &slot->words) != ZD_OK) {
        slot->error = *zd_error_get();
        zd_error_clear();
    }
    row_notes_append(&slot->notes, &worker->notes);
}

static struct slot *claim(struct pipeline *pipeline, bool *steps_back_out)
{
    struct slot *slot = NULL;
    pthread_mutex_lock(&pipeline->mutex);
    while (!pipeline->stopping && pipeline->claimed == pipeline->filled)
        pthread_cond_wait(&pipeline->ready, &pipeline->mutex);
    if (!pipeline->stopping)
        slot = &pipeline->slots[pipeline->claimed++ % pipeline->slot_count];
    *steps_back_out = pipeline->steps_back;
    pthread_mutex_unlock(&pipeline->mutex);
    return slot;
}

static void *work(void *argument)
{
    struct pipeline *pipeline = argument;
    struct tokenize_worker worker;
    struct slot *slot;
    bool steps_back, has_stepped = false;
    tokenize_worker_init(&worker, pipeline->run->recipe);
    while ((slot = claim(pipeline, &steps_back)) != NULL) {
        if (steps_back)
            step_back(&has_stepped);
        work_on(&worker, slot);
        pthread_mutex_lock(&pipeline->mutex);
        slot->is_done = true;
        pthread_cond_signal(&pipeline->done);
        pthread_mutex_unlock(&pipeline->mutex);
    }
    tokenize_worker_fini(&worker);
    return NULL;
}

/* Progress for people: a line every few seconds of a long file. */
static void report(struct pipeline *pipeline, const struct unit *unit)
{
    const struct file_list *list = pipeline->run->list;
    const time_t interval = pipeline->run->steps_back ? 60 : 5;
    uint64_t done = unit->consumed, total = 0;
    struct timespec now;
    for (const struct data_file *f = list->files; f < unit->file; f++)
        done += f->bytes;
    for (int i = 0; i < list->count; i++)
        total += list->files[i].bytes;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec < pipeline->next_report)
        return;
    if (pipeline->next_report)
        zd_log_info(
                "tokenizing: %.0f of %.0f MB", (double)done / 1e6,
                (double)total / 1e6);
    pipeline->next_report = now.tv_sec + interval;
}

static void fill(struct pipeline *pipeline)
{
    pthread_mutex_lock(&pipeline->mutex);
    pipeline->filled++;
    pthread_cond_signal(&pipeline->ready);
    pthread_mutex_unlock(&pipeline->mutex);
}

static struct slot *wait_oldest(struct pipeline *pipeline)
{
    struct slot *slot =
            &pipeline->slots[pipeline->taken % pipeline->slot_count];
    pthread_mutex_lock(&pipeline->mutex);
    while (!slot->is_done)
        pthread_cond_wait(&pipeline->done, &pipeline->mutex);
    slot->is_done = false;
    pipeline->taken++;
    pthread_mutex_unlock(&pipeline->mutex);
    return slot;
}

/* Memory of an unusually long document goes back at once. */
static void trim_slot(struct slot *slot)
{
    if (slot->unit.capacity > KEEP_BYTES) {
        free(slot->unit.text);
        slot->unit.text = NULL;
        slot->unit.capacity = 0;
    }
    if (slot->words.capacity * sizeof *slot->words.ids > KEEP_BYTES)
        token_vector_fini(&slot->words);
    slot->words.count = 0;
}

/* Give the workers as much as there is room for. */
static void read_ahead(struct pipeline *pipeline, struct unit_reader *reader)
{
    while (pipeline->more &&
           pipeline->filled - pipeline->taken < pipeline->slot_count &&
           (pipeline->filled == pipeline->taken ||
            pipeline->in_flight < IN_FLIGHT_BYTES)) {
        struct slot *slot =
                &pipeline->slots[pipeline->filled % pipeline->slot_count];
        if (unit_read(reader, &slot->unit, &pipeline->more) != ZD_OK) {
            /* reported in order: a unit before this one may have failed too */
            slot->error = *zd_error_get();
            zd_error_clear();
            slot->unit.bytes = 0;
            pipeline->more = false;
        } else if (!pipeline->more) {
            return;
        }
        pipeline->in_flight += slot->unit.bytes;
        fill(pipeline);
    }
}

static enum zd_status take_oldest(struct pipeline *pipeline)
{
    const struct tokenize_run *run = pipeline->run;
    struct slot *slot = wait_oldest(pipeline);
    pipeline->in_flight -= slot->unit.bytes;
    report(pipeline, &slot->unit);
    if (slot->error.status != ZD_OK) {
        zd_error_set(&slot->error);
        return slot->error.status;
    }
    row_notes_append(run->notes, &slot->notes);
    ZD_TRY(run->sink(
            run->ctx, (const uint32_t *)slot->words.ids, slot->words.count));
    pipeline->words += slot->words.count;
    trim_slot(slot);
    return ZD_OK;
}

static enum zd_status run_all(struct pipeline *pipeline)
{
    enum { FIRST_WORDS = 4 << 20 };
    struct unit_reader reader;
    const struct tokenize_run *run = pipeline->run;
    enum zd_status status = ZD_OK;
    bool has_stepped = false;
    unit_reader_init(&reader, run->list, run->recipe->tokenizer);
    pipeline->more = true;
    while (status == ZD_OK) {
        read_ahead(pipeline, &reader);
        if (pipeline->taken == pipeline->filled)
            break;
        status = take_oldest(pipeline);
        if (!run->steps_back || pipeline->words < FIRST_WORDS || has_stepped)
            continue;
        step_back(&has_stepped);
        pthread_mutex_lock(&pipeline->mutex);
        pipeline->steps_back = true;
        pthread_mutex_unlock(&pipeline->mutex);
    }
    unit_reader_fini(&reader);
    return status;
}

static void stop(struct pipeline *pipeline, pthread_t *threads, int count)
{
    pthread_mutex_lock(&pipeline->mutex);
    pipeline->stopping = true;
    pthread_cond_broadcast(&pipeline->ready);
    pthread_mutex_unlock(&pipeline->mutex);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < pipeline->slot_count; i++) {
        free(pipeline->slots[i].unit.text);
        token_vector_fini(&pipeline->slots[i].words);
    }
    free(pipeline->slots);
    pthread_mutex_destroy(&pipeline->mutex);
    pthread_cond_destroy(&pipeline->ready);
    pthread_cond_destroy(&pipeline->done);
}

enum zd_status tokenize_files(const struct tokenize_run *run)
{
    pthread_t ids[THREADS_MAX];
    struct pipeline pipeline = {.run = run};
    int threads = run->threads < THREADS_MAX ? run->threads : THREADS_MAX;
    int started = 0;
    pipeline.slot_count = 2 * threads;
    pipeline.slots = zd_array((size_t)pipeline.slot_count, sizeof(struct slot));
    pthread_mutex_init(&pipeline.mutex, NULL);
    pthread_cond_init(&pipeline.ready, NULL);
    pthread_cond_init(&pipeline.done, NULL);
    while (started < threads &&
           thread_start(&ids[started], "zerod-text", work, &pipeline) == 0)
        started++;
    enum zd_status status =
            started > 0 ? run_all(&pipeline)
                        : ZD_FAIL(ZD_ERR_MEMORY, "E0602",
                                  "cannot start a thread to tokenize");
    stop(&pipeline, ids, started);
    return status;
}
