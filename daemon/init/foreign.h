/* foreign.h - other trainers' files as jobs. Each format is a table of their
 * keys, formats/NAME.yaml; one walker takes a file through it.
 *
 * A key of theirs becomes ours, is named in a comment if training is the same
 * without it, or is refused, as is a key that no table has. What a table says:
 *
 *   name, base, yaml   the format; a table whose rows hold too; YAML, else JSON
 *   marks              keys that tell a file of this format from others
 *   variant            keys of which a file of the variant "@" has one
 *   notes              why training is the same without them: [their keys]
 *   off                why they are refused unless off: [their keys]
 *   rows               their key, or several with blanks between ("a b*"): our
 *                      key, or
 *     key, keys          our key; one for each item of their list
 *     words              {theirs: ours}; ours may be null (nothing to set), or
 *                        {our key: value, differs: why, refuse: why}
 *     else               why every other value is refused
 *     note               why nothing is set
 *     default, when      their default, for a file without the key, on a
 *                        condition; defaults: [{value, when}], the first counts
 *     needs, idle        a condition without which the key means nothing: why
 *     each, split        every item of a list is a word; text is cut at commas
 *     over, late         replaces what other keys set; is taken after others
 *     take               a converter of foreign_take.c
 *   defaults           [{key, value, when, why}] that follow from no key
 *
 * A condition is "name", "!name", "name=word" or "name!=word", joined by " & ".
 * "--data" is the option, "@" the variant. */
#pragma once

#include "daemon/init/draft.h"

struct foreign;
typedef void foreign_fn(struct foreign *from);

struct foreign {
    const char *option; /* of the format: "hf" of --from-hf */
    json_t *table;      /* {name, variant, defaults, rows: {their key: row}} */
    const char *path;   /* of the file */
    const char *prefix; /* of names inside it: "datasets[0]."; or "" */
    const json_t *root;
    struct draft *draft;
    json_t *source;    /* the entry of data that "data.train." means; NULL: the
                          first */
    json_t *taken;     /* {name: value}: keys that were looked at */
    const json_t *row; /* of the key that is being taken, .. */
    const char *name;  /* .. which is this one, .. */
    json_t *value;     /* .. with this value */
    bool is_part;      /* inside another format's file, which says the rest */
    bool is_default;   /* their defaults are being taken */
    bool is_late;
    foreign_fn *(*converter)(const char *name); /* of `take` */
    foreign_fn *finish;                         /* before the defaults */
};

/* foreign_file.c: the tables. `option` names one; the caller frees it. */
json_t *foreign_table(const char *option);

/* Everything in `root`, an object of the file at `path`, into the draft.
 * is_part: it stands in another format's file, which says the rest. */
void foreign_take(
        const char *option, const char *path, const json_t *root,
        struct draft *draft, bool is_part);
/* ZD_ERR_DATA for a file that is not JSON or YAML, or is another trainer's or a
 * command line; ZD_ERR_NO_INPUT. The text stays with the draft. */
enum zd_status foreign_read(
        const char *option, const char *path, struct draft *draft,
        json_t **root_out);

/* --- foreign.c: the walker, and what converters take of it --- */

void foreign_walk(struct foreign *from);
/* The words of a text, with commas or blanks between. */
json_t *foreign_split(const char *text);
/* The key becomes ours. Takes the reference to `value`. */
void foreign_set(struct foreign *from, const char *key, json_t *value);
void foreign_refuse(struct foreign *from, const char *why);
void foreign_note(struct foreign *from, const char *why);
/* By its name with dots; NULL: it is not there. */
const json_t *foreign_get(const struct foreign *from, const char *name);
/* A condition of a table. */
bool foreign_holds(const struct foreign *from, const char *condition);
