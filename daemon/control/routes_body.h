/* routes_body.h - a JSON body into what a command takes; what is wrong with it
 * becomes the reply, with a body that would do as the hint. For the files
 * routes*.c alone. */
#ifndef ZD_DAEMON_CONTROL_ROUTES_BODY_H
#define ZD_DAEMON_CONTROL_ROUTES_BODY_H

#include "daemon/control/routes_internal.h"

enum field_type { FIELD_BOOL, FIELD_COUNT, FIELD_SECONDS, FIELD_TEXT };

struct field {
    const char *name;
    enum field_type type;
    double min, max;
    void *out;   /* bool, int, double, char[max + 1] */
    bool *given; /* may be NULL */
};

/* An object, {} without a body; NULL: `reply` says why. New reference. */
json_t *body_read(const struct http_request *request, struct http_reply *reply);
/* The whole body into fields. */
bool body_read_fields(
        const struct http_request *request, const struct field *fields,
        int count, struct http_reply *reply);
/* One value. */
bool body_take(
        const struct field *field, const json_t *value,
        struct http_reply *reply);
/* Say what is expected of `name`, and false. `example` is a value that would
 * do, as JSON. */
bool body_wrong(
        struct http_reply *reply, const char *name, const char *expected,
        const char *example);
/* Say that `key` is none of `names`, and false. */
bool body_unknown_key(
        struct http_reply *reply, const char *key, const char *const *names,
        int count);

#endif
