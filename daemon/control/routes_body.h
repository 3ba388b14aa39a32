/* routes_body.h - what commands take, as a table, and a JSON body into it; what
 * is wrong with a body becomes the reply, with a body that would do as the
 * hint. For the files routes*.c alone. */
#ifndef ZD_DAEMON_CONTROL_ROUTES_BODY_H
#define ZD_DAEMON_CONTROL_ROUTES_BODY_H

#include "daemon/control/routes_internal.h"

struct wish { /* a body, read */
    struct train_command command;
    bool wait;
    double timeout; /* seconds; 0: as long as it takes */
};

enum field_type { FIELD_BOOL, FIELD_INTEGER, FIELD_REAL, FIELD_TEXT };

struct field {
    const char *name;
    enum field_type type;
    size_t offset;   /* in struct wish: bool, int, double, char[max + 1] */
    double min, max; /* of a text: its bytes */
};

enum { FIELDS_MAX = 2 };

/* Every command takes "wait" too, and `set` the trainer's settings. */
struct command_form {
    enum train_command_kind kind;
    struct field fields[FIELDS_MAX]; /* without a name: no more */
};
extern const struct command_form command_forms[COMMAND_KINDS];

bool body_read(
        const struct http_request *request, const struct command_form *form,
        struct wish *wish_out, struct http_reply *reply);
/* The answer of a command: 202, or later what became of it. */
void command_answer(
        struct routes *routes, const struct http_request *request,
        const struct command_form *form, struct http_reply *reply);

#endif
