/* store_file.h - the inside of a store whose chunks are in a file; how it
 * works: store_file.c. store_file_create.c makes it. Private to both. */
#ifndef ZD_OFFLOAD_STORE_FILE_H
#define ZD_OFFLOAD_STORE_FILE_H

#include "offload/aio.h"
#include "offload/store_record.h"

#include <pthread.h>

/* four parts fall into two groups of neighbors at most */
enum { NO_CHUNK = -1, NO_BUFFER = -1, MOVES = 2 };

struct buffer {
    char *data;
    int chunk;        /* whose bytes it has, or NO_CHUNK */
    unsigned valid;   /* parts that are as they were written last */
    bool is_reserved; /* for a worker of the list; else spare */
    int waiting;      /* workers that wait for this reservation */
    bool is_held;
    int reading, writing; /* ops under way */
    uint64_t used;        /* when it became spare */
    struct aio_op read[MOVES], write[MOVES];
    struct store_file *store;
};

struct store_file {
    struct store_request request;
    uint64_t *offsets; /* of records, by chunk */
    unsigned in_file;  /* chunk_parts that the file has */
    struct aio *aio;
    struct aio_file file;

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    struct store_list list;
    unsigned reads, writes; /* of the list, as far as the file has them */
    int ahead;              /* chunks of the list before it were reserved */
    uint64_t list_number;
    uint64_t *reserved_in; /* by chunk: number of the list that it was last
                              reserved for */
    int *buffer_of;        /* by chunk, or NO_BUFFER */
    int writes_under_way, reads_under_way;
    uint64_t clock;       /* for buffer.used */
    struct aio_op failed; /* the first op that failed */
    bool has_failed;
    uint64_t read_bytes, written_bytes; /* since the last report */
    double wait_seconds;
    int buffer_count;
    struct buffer buffers[];
};

/* When an op of a buffer (its ctx) has ended. */
void store_file_end_read(struct aio_op *op);
void store_file_end_write(struct aio_op *op);

#endif
