/* completions_internal.h - for the files completions*.c alone. */
#ifndef ZD_DAEMON_COMMAND_COMPLETIONS_INTERNAL_H
#define ZD_DAEMON_COMMAND_COMPLETIONS_INTERNAL_H

#include "daemon/command/completions.h"

/* What a placeholder of the tables, "auto|never|PATH" or "[FILE]", stands for:
 * any of these together. */
struct completion_value {
    char words[256];  /* separated by spaces */
    const char *more; /* likewise, of the caller's; "" */
    bool is_file, is_dir, is_job, is_key;
};
struct completion_value completion_value_of(
        const struct completion_keys *keys, const char *placeholder);

typedef void completion_value_fn(
        FILE *stream, const struct cli_program *program,
        const struct completion_value *value);
/* _NAME_values of bash and zsh: what follows $1, an option with a value or the
 * command whose operand comes. `open` is what a pattern of theirs begins with.
 */
void completion_put_values(
        FILE *stream, const struct cli_program *program,
        const struct completion_keys *keys, const char *open,
        completion_value_fn *put_value);

/* Is commands[index] the first of a group of two words, like "ckpt ls"? Then
 * group_out is "ckpt". */
bool completion_begins_group(
        const struct cli_program *program, int index, char *group_out,
        size_t bytes);

/* `script` with the program's name for NAME, and for VALUED its options that
 * are followed by a value: "--out|-o|--job", in fish with blanks between. */
void completion_put_script(
        FILE *stream, const struct cli_program *program, const char *script,
        const char *between);
/* The element that has keys; NULL: none has. */
const struct completion_keys *completion_find_keys(
        const struct completion_keys *keys);
/* A one-line text between single quotes, for every shell. */
void completion_put_quoted(FILE *stream, const char *text);

typedef void completion_shell_fn(
        FILE *stream, const struct cli_program *program,
        const struct completion_keys *keys);
completion_shell_fn completion_put_bash, completion_put_zsh,
        completion_put_fish;

#endif
