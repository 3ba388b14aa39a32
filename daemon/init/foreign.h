/* foreign.h - other trainers' files as jobs: one table a format, a row a key.
 *
 * A key of theirs becomes ours, or is named in a comment where training is the
 * same without it, or stands in the way. None is passed over: what no row
 * names stands in the way too. */
#ifndef ZD_DAEMON_INIT_FOREIGN_H
#define ZD_DAEMON_INIT_FOREIGN_H

#include "daemon/init/draft.h"

enum foreign_rule {
    FOREIGN_KEY,  /* `key` with their value; of `words` ours for theirs */
    FOREIGN_WORD, /* the same, and nothing but `words` */
    FOREIGN_NOTE, /* training is the same without it: `why` */
    FOREIGN_OFF,  /* the same with one of `words`; another value stands in the
                     way: `why` */
    FOREIGN_CALL, /* `take` does it */
};

struct foreign;
typedef void foreign_fn(
        struct foreign *foreign, const char *name, const json_t *value);

struct foreign_row {
    const char *names; /* "optimizer.params.lr"; several with blanks between;
                          "wandb*": all that begin so */
    enum foreign_rule rule;
    const char *key;   /* "optim.learning_rate"; "data.train.field": of the
                          first source */
    const char *words; /* "theirs=ours|..", or "theirs|.." for FOREIGN_OFF;
                          "theirs=": known, and nothing is set */
    const char *why;
    foreign_fn *take;
    /* Their default, for a file without the key or with null: taken as if it
     * stood there.
     * NULL: it is ours, or nothing follows from it. Where it depends on other
     * keys there are several rows of one name, and the first of them that
     * holds counts. */
    const char *absent;
    const char *when; /* .. if that key is there and not off; "key=word": has
                         that value; "@": format->is_variant. NULL: always */
};

/* What follows from no key of theirs alone. */
struct foreign_default {
    const char *key, *value; /* as TOML has it */
};

struct foreign_format {
    const char *name;                  /* "a DeepSpeed configuration" */
    const struct foreign_format *base; /* whose rows hold too; or NULL */
    const char *option;                /* "deepspeed": of --from-deepspeed */
    bool is_yaml;                      /* else JSON */
    const struct foreign_row *rows;
    int row_count;
    const struct foreign_default *defaults;
    int default_count;
    void (*finish)(struct foreign *foreign); /* before the defaults; or NULL */
    bool (*is_variant)(const struct foreign *foreign); /* or NULL */
};

struct foreign {
    const struct foreign_format *format;
    const char *path; /* of the file */
    const json_t *root;
    struct draft *draft;
    json_t *called;  /* what functions took: {name: value} */
    bool is_part;    /* of another's file, which says the rest */
    bool is_default; /* their defaults are being taken */
};

extern const struct foreign_format foreign_deepspeed, foreign_hf,
        foreign_axolotl, foreign_llamafactory, foreign_torchtune;

/* Everything in `root` is taken into the draft. */
void foreign_take(
        const struct foreign_format *format, const char *path,
        const json_t *root, struct draft *draft);
/* The same of what another's file holds or names; that says the rest. */
void foreign_take_part(
        const struct foreign_format *format, const char *path,
        const json_t *root, struct draft *draft);
/* ZD_ERR_DATA for a file that is not JSON or YAML, or is another trainer's or a
 * command line; ZD_ERR_NO_INPUT. The text stays with the draft. */
enum zd_status foreign_read(
        const struct foreign_format *format, const char *path,
        struct draft *draft, json_t **root_out);

/* --- for the tables --- */

/* By its name with dots; NULL: it is not there. */
const json_t *foreign_get(const struct foreign *foreign, const char *name);
bool foreign_is(const struct foreign *foreign, const char *name, bool value);
/* Not given, null or "auto". */
bool foreign_is_open(const json_t *value);
void foreign_set(
        struct foreign *foreign, const char *name, const char *key,
        json_t *value);
void foreign_refuse(
        struct foreign *foreign, const char *name, const json_t *value,
        const char *why);
/* A file that `foreign`'s names, or an object of it: a DeepSpeed configuration.
 * After all else: its optimizer and schedule are those of the run. */
foreign_fn foreign_take_deepspeed;
foreign_fn foreign_take_betas; /* [0.9, 0.999] */

#endif
