/* messages.h - the messages of a queue, by kind. Plain bytes; pointers only
 * where a message says that it owns what they point to. */
#pragma once

#include "daemon/state/past.h"
#include "daemon/state/queue.h"
#include "daemon/state/series.h"

struct run_facts { /* of the banner */
    int world, zero_stage, per_device, accumulation_max;
    int64_t parameters, trainable, samples_per_epoch, first_step;
    double flops_per_token;
    double peak;        /* FLOP/s of a rank's device; 0: not known */
    double deadline;    /* 0: none */
    bool has_eval_data; /* what `eval` needs */
    char host[64];
    /* kept up to date from then on */
    int accumulation;
    int64_t global_batch, max_steps, samples_taken, tokens, bad_rows;
    double eval_loss, best_eval_loss; /* NaN: none */
    double settings[SETTINGS];        /* that hold; NaN: not known, does not
                                         apply */
};

struct message_banner {     /* MESSAGE_BANNER */
    json_t *plan;           /* owned by the receiver; may be NULL */
    struct history *series; /* likewise; NULL: a fresh start */
    struct past *past;      /* likewise */
    struct run_facts facts;
    double loss_scale;
    double checkpoint_time;  /* of the one that was resumed from; 0 */
    struct train_live live;  /* as it was saved */
    char resumed_from[4096]; /* "": a fresh start */
};

/* MESSAGE_STEP: struct train_step_report; MESSAGE_COMMAND: struct train_command
 */

struct message_stall { /* MESSAGE_STALL */
    bool is_stalled;   /* of what follows; else: no more */
    int rank;
    int64_t step;
    double time, since; /* seconds since 1970 */
    char host[64], operation[96];
};

struct message_ranks { /* MESSAGE_RANKS; the reports of all ranks follow */
    int64_t count;
};

struct message_event { /* MESSAGE_EVENT, MESSAGE_STEP_EVENT; after it the text,
                       with its NUL */
    int64_t id, step;
    double time;
    char kind[16];
};

struct message_done { /* MESSAGE_DONE */
    struct train_command command;
    int64_t step;
    bool failed;
    struct zd_error error;
    json_t *result; /* owned by the receiver; may be NULL */
};

/* MESSAGE_END: stopped_by of train_end, as a char[STOPPED_MAX]; "": nothing did
 */
enum { STOPPED_MAX = 16 };

/* --- tee.c: an observer that queues each call as a message, then calls the
 * next observer for the banner, steps and the end --- */

struct tee {
    struct message_queue *queue;
    const struct train_observer *next; /* borrowed; hears banner, steps, end */
    const char *socket_path;           /* told in the banner; or NULL */
};

/* Calls that go to `tee`, which must outlive them. */
struct train_observer tee_observer(struct tee *tee);
