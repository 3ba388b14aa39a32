/* dataset.h - from files to numbered samples.
 *
 *   files -> documents -> tokens (cache, memory-mapped) -> samples -> order
 *
 * Which sample the n-th one is depends on (data_seed, n) alone: with M samples
 * it is number (n mod M) of epoch n / M, through a permutation of (data_seed,
 * epoch) when shuffled. Of several [[data.train]] entries each makes its own
 * M_k samples. Without weights an epoch takes them all; with weights it is as
 * long, and weight_k / sum of weights of it are of entry k.
 *
 * Packing: the documents in file order, each followed by end-of-text, form one
 * stream; sample j is stream[jT .. jT+T]. Packing of documents: whole ones, up
 * to T+1 tokens a sample (pack.h), padding masked. No packing: one document a
 * sample. See docs/data.md. */
#pragma once

#include "data/tokenizer/tokenizer.h"

enum data_format {
#define FORMAT(value, ...) value,
#include "data/formats.inc"
#undef FORMAT
};
enum chat_template {
#define LAYOUT(value, ...) value,
#include "data/layouts.inc"
#undef LAYOUT
    CHAT_FILE
};
enum data_packing {
    PACKING_NO,        /* a document a sample */
    PACKING_STREAM,    /* documents end to end, cut where a sample ends */
    PACKING_DOCUMENTS, /* whole documents, as many as a sample holds */
    PACKING_AUTO       /* DOCUMENTS for what has prompts, else STREAM */
};
/* How to treat documents longer than a sample, unless PACKING_STREAM. */
enum long_documents { LONG_TRUNCATE, LONG_SPLIT, LONG_DROP };
enum data_shuffle {
    SHUFFLE_NO,
    SHUFFLE_WHOLE,   /* an epoch is one permutation */
    SHUFFLE_WINDOWS, /* each window is permuted; windows in order */
    SHUFFLE_AUTO /* WINDOWS for text of DATA_LARGE and more in a stream, else
                    WHOLE */
};
#define DATA_LARGE (UINT64_C(1) << 30) /* bytes of files */
enum bad_row { BAD_ROW_STOP, BAD_ROW_SKIP };
/* TRAIN_ON_LAST: of a conversation the last message of the assistant. */
enum train_on { TRAIN_ON_ASSISTANT, TRAIN_ON_ALL, TRAIN_ON_LAST };

struct data_entry { /* one [[data.train]] or [[data.eval]]; strings borrowed */
    const char *name;
    const char *path;  /* file, glob or folder */
    const char *split; /* of a folder; "auto": train, for evaluation validation
                          or else test */
    bool is_eval;
    enum data_format format;
    double weight; /* share of samples; 0: there are no weights */
    const char *field, *messages_field, *role_field, *content_field;
    /* "theirs=ours": the columns of a record that are taken, and names of roles
     * (columns_apply); none: all, as they are */
    const char *const *columns, *const *roles;
    int column_count, role_count;
    int64_t max_samples; /* 0 = all */
};

struct data_options { /* [data] */
    int cutoff_len;   /* T */
    enum data_packing packing;
    enum long_documents long_documents;
    enum bad_row on_bad_row;
    enum data_shuffle shuffle;
    bool add_eos;
    enum chat_template chat_template;
    const char *chat_file;     /* with CHAT_FILE */
    const char *template_date; /* "YYYY-MM-DD"; NULL: that of the
                                  run's first start */
    enum train_on train_on;
    const char *cache_dir;     /* "auto": beside nothing the user owns:
                                  $XDG_CACHE_HOME/zerod or ~/.cache/zerod */
    bool cache_shared;         /* files of other users in it are used */
    int preprocessing_threads; /* 0 = auto */
    int prefetch;              /* batches */
    double val_split;
    struct data_entry *train, *eval; /* borrowed arrays */
    int train_count, eval_count;
};

struct data_options data_options_default(void);
struct data_entry data_entry_default(void);

struct dataset;

/* DATA_LOOK reads so much of each entry. */
enum { CHECKED_RECORDS = 10000, CHECKED_TOKENS = 4 << 20 };
/* How far data is checked when it is opened. */
enum data_depth {
    DATA_TRUST, /* the cache is trusted, ids are checked as they are read */
    DATA_CHECK, /* text whole, the cache by size and time (token_cache.h),
                   pre-tokenized files up to 4 GiB, that each entry has a target
                   which the loss counts; what cutoff_len cuts off is told */
    DATA_LOOK   /* the same, of the first CHECKED_RECORDS of each entry, fewer
                   where they have CHECKED_TOKENS, without changing the cache;
                   an entry that the cache holds is checked whole */
};

struct dataset_request {
    const struct data_options *options;
    const struct data_entry *entries;
    int entry_count;
    const struct tokenizer *tokenizer; /* NULL: only pre-tokenized data */
    int eos;                           /* end-of-text id; -1: none */
    int vocab_size;                    /* of the model: ids must be below */
    const char *template_date;         /* "YYYY-MM-DD"; NULL: today */
    uint64_t data_seed;
    bool shuffle; /* false for evaluation */
    /* Part of every entry's samples, for val_split: [from, to) with
     * 0 <= from < to <= 1, cut at the nearest whole sample. */
    double from, to;
    bool may_be_masked; /* of which nothing is trained: to look at it */
    /* Large text may be tokenized while it is read, under this name, which all
     * ranks of a host give and no one else: the number of its samples is not
     * needed. NULL: it may not. One rank begins, before the others open. */
    const char *growth;
    bool begins_growth;
    const char *waits; /* why large text is tokenized first, told where it is;
                          NULL: it is not large */
    enum data_depth depth;
};
/* Tokenize into the cache whatever is not there yet, with progress through
 * zd_log_info, and open it. One rank of each host does so before the others,
 * with DATA_CHECK. ZD_ERR_DATA naming the file when an entry gives not one
 * sample, or trains nothing. The request may go afterwards. */
enum zd_status dataset_open(
        const struct dataset_request *request, struct dataset **out);
/* Bytes that a host takes at most to tokenize the job's training data while it
 * is trained on; 0 where it would not be, or is not there. Of all ranks
 * together, and beside what they plan.
 *
 *   a thread   two units of text, and words of at most 4 bytes for each of
 *              their bytes in vectors of twice that; the encoder's cache: 8 MiB
 *   a reader   what a container takes: zstd its window, Parquet its pages; the
 *              text of a record of GROWTH_RECORD_BYTES, longer ones are errors
 *   all        such a record's JSON, document and words: 28 MiB, one at a time
 *
 * Where readers take much there are fewer threads: it is 200 MB at most, but
 * for Parquet and several .zst at a time.
 *
 * counts_samples: the job needs an epoch's length (train_counts_samples), so
 * that nothing grows. *waits_out: why text of DATA_LARGE is tokenized before
 * step 1; NULL: it is not, or there is less. */
uint64_t dataset_growth_bytes(
        const struct data_options *options, bool counts_samples,
        const char **waits_out);
/* Reads the whole cache on a thread of lowest priority. If a file is damaged,
 * dataset_sample fails from then on (E0450), and the next start rebuilds it. */
void dataset_check_begin(struct dataset *dataset);
void dataset_check_wait(struct dataset *dataset); /* until it is done */
void dataset_close(struct dataset *dataset);

struct dataset_summary {
    int64_t samples; /* M of an epoch; 0: not known, the text was not whole when
                        it was opened */
    int64_t tokens;  /* of all documents */
    int64_t bad_rows; /* that on_bad_row left out so far */
    int sources;      /* entries */
    bool is_part;     /* DATA_LOOK has not read all */
    /* Of the tokens, the weights and what part is taken; the same on every host
     * and for every cutoff_len and packing. */
    const char *digest;
    const char *order;   /* "true", "false" or "windows" */
    const char *packing; /* "true", "false" or "documents", as all entries are
                            packed; "auto": they differ */
    const char *chat_template; /* its word in a job, or the path of its file;
                                  NULL where nothing is a conversation */
};
/* Its texts are the dataset's. */
struct dataset_summary dataset_summary(const struct dataset *dataset);
/* One entry: its share of an epoch's samples, and how many it has. */
struct dataset_source {
    double share;
    int64_t samples;
};
struct dataset_source dataset_source(const struct dataset *dataset, int index);
/* Warn where the template is another than the model's own; `names`: and log
 * which it is. */
void dataset_tell_template(
        const struct dataset *dataset, const struct dataset_request *request,
        bool names);

/* What an epoch holds, every sample of it read. */
struct dataset_facts {
    long long documents; /* of all entries; -1: they were not counted */
    long long samples;   /* of all entries, */
    long long held_out;  /* of which val_split keeps so many */
    /* Unless packed as a stream: documents that fit a sample; longer ones that
     * are cut, their tokens, and how many of these no sample has; and those
     * that are left out. */
    long long whole_documents;
    long long cut_documents, cut_tokens, lost_tokens;
    long long dropped_documents, dropped_tokens;
    double inputs, targets; /* of an epoch; those that the loss counts */
    /* Documents whose end lies in another sample than their beginning, and the
     * targets there. */
    long long split_documents;
    long long packed_documents; /* as a stream */
    double split_targets;       /* of an epoch */
};
enum zd_status dataset_count(
        struct dataset *dataset, struct dataset_facts *facts_out);

/* The n-th sample ever taken: tokens, targets (-1 masked), doc_start, each (T).
 * *token_count_out: input tokens, padding not counted. A bad token found late
 * is ZD_ERR_DATA. May be called from one thread at a time. */
enum zd_status dataset_sample(
        struct dataset *dataset, int64_t n, int32_t *tokens, int32_t *targets,
        int32_t *doc_start, int *token_count_out);

/* A loader reads batches ahead on a thread of its own into planned buffers. */
struct loader;
struct loader_batch {
    const int32_t *tokens, *targets, *doc_start; /* (B, T) borrowed; of
                                                    places (B, T / places) */
    const int32_t *all_doc_start;                /* (B, T) */
    int T; /* of the longest row: one of at most 16 for a cutoff_len, since
              libraries and GPUs prepare for a shape */
    int64_t token_count;  /* input tokens, padding not counted .. */
    int64_t target_count; /* .. and unmasked targets: of whole samples */
};
/* Bytes of the buffers of `batches` batches. */
size_t loader_bytes(int batches, int B, int T);
/* Batches are asked for in an order given by `sample_of(ctx, batch, b)`: the
 * global number of row b of the batch-th batch this rank takes; below 0: the
 * row is masked. */
struct loader_order {
    int64_t (*sample_of)(void *ctx, int64_t batch, int b);
    void *ctx;
    bool keeps_length; /* rows have T tokens, whatever the longest has */
    /* With several places, which need that, of 2 `places` pieces of a row piece
     * `place` and piece 2 places - 1 - place alone (model_shape.cp). 2 places
     * divides T */
    int places, place;
};
/* Reads one batch on the calling thread. `memory`: loader_bytes of one batch.
 * If a row cannot be read, it and all later rows are masked, and its error is
 * returned. */
enum zd_status batch_read(
        struct dataset *dataset, const struct loader_order *order,
        int64_t batch, int B, int T, int32_t *memory,
        struct loader_batch *batch_out);
/* The dataset belongs to the loader's thread until loader_destroy. T is its
 * cutoff_len. `keep` batches stay valid while `ahead` are read ahead (each at
 * least 1); `memory`: for keep + ahead. */
enum zd_status loader_create(
        struct dataset *dataset, struct loader_order order, int64_t first_batch,
        int64_t batch_count, int B, int T, int keep, int ahead, void *memory,
        struct loader **out);
/* Waits up to `ms` for the next batch; true: it is ready or has failed.
 * Progress of tokenizing the text that it needs is passed on as the calling
 * thread's (base/progress.h). */
bool loader_wait(struct loader *loader, int ms);
/* The next batch; valid until the `keep`-th call after this one. A failure
 * comes with the batch it happened in. At most `batch_count` calls. */
enum zd_status loader_next(
        struct loader *loader, struct loader_batch *batch_out);
void loader_destroy(struct loader *loader);
