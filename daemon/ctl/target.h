/* target.h - the job that is asked: by its socket, or, where that is out of
 * reach, by the files of its output folder. */
#pragma once

#include "daemon/ctl/client.h"

struct target {
    char *socket; /* NULL: files answer */
    char *dir;    /* output folder; NULL unless files answer */
    json_t *file; /* status.json; NULL likewise. Of a run that went
                              without writing so the state is "died", or
                     "failed" with the event "hang"; of one that failed "cause"
                     has what its next start would read of it */
    double age;   /* seconds since status.json was written */
};

void target_fini(struct target *target);
void target_of_socket(const char *socket, struct target *target_out);
/* Reads dir/status.json; its socket is asked when it answers for the same
 * process. Where it does not, the lock of the folder tells whether the run
 * lives. E1097 (66) without that file. */
enum zd_status target_of_dir(const char *dir, struct target *target_out);

/* Before it is asked again: files are read anew. */
enum zd_status target_renew(struct target *target);

/* The answer to GET `what` ("/v1/status", "/v1/metrics/history?name=.."), an
 * object. From files: status, ranks, memory, metrics/history, samples, plan;
 * E1097 for others. */
enum zd_status target_get(
        const struct target *target, const char *what, json_t **json_out);

/* Does the job end within `seconds`? A socket that closes is looked at again,
 * for a run takes a moment to leave. Clears the record of what failed when it
 * has. */
bool target_has_ended(const struct target *target, double seconds);
/* Is the "state" of a status among these? */
#define STATES_ENDED "done stopped failed died"
bool status_is_one_of(const json_t *status, const char *states);
/* status.json, when files answer, is that of a run that has ended, or ended
 * badly. */
bool target_file_has_ended(const struct target *target);
bool target_file_has_failed(const struct target *target);

/* Lines of /v1/logs or data of /v1/events, without line ends: until the job or
 * the file ends, or forever with `follow`. `line` returns false for enough. */
struct target_stream {
    bool is_events;  /* else logs */
    bool with_steps; /* of events */
    int rank;        /* of logs */
    int64_t tail;    /* last lines; -1: all that are kept */
    bool follow;
    bool (*line)(void *ctx, const char *line);
    void *ctx;
};
enum zd_status target_stream(
        const struct target *target, const struct target_stream *stream);
