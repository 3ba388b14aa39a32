/* format.h - what a data format is: the table that formats.inc fills. */
#pragma once

#include "data/chat.h"
#include "data/document.h"
#include "data/raw.h"

/* A record, and the document that it becomes. */
struct reading {
    const struct recipe *recipe;
    struct chat_renderer *renderer; /* of recipe->chat */
    const json_t *record;
    struct document *document;
};
/* As format_read; the document is empty. */
typedef enum zd_status record_reader(const struct reading *reading);
/* What is open, and begins at `begin` of the stream: its data_offset, width,
 * is_signed and count. As raw_open. */
typedef enum zd_status token_opener(
        struct raw_file *file, struct cache_writer *documents);

struct format {
    const char *name;
    /* Records: JSON Lines, or whole text files (DATA_TEXT alone). */
    const char *keys[2]; /* that a record of it has; `auto` looks for them */
    bool is_chat;
    /* Is it this format? NULL: if it has the keys. */
    bool (*fits)(const json_t *record, const struct data_entry *entry);
    record_reader *read;
    /* As a conversation, for the model's own template; NULL: never. */
    record_reader *talk;
    /* Tokens in .bin files. */
    bool has_index;    /* a second file: megatron_index_path */
    int32_t magics[3]; /* the first number of such a file */
    token_opener *open;
};

const struct format *format_of(enum data_format format);

/* What the keys of a JSON record say its format is; DATA_AUTO: nothing known.
 */
enum data_format format_recognize(
        const json_t *record, const struct data_entry *entry);
/* The keys that it looks for: "a", "b" and "c", ... */
void format_keys(const struct data_entry *entry, char *out, size_t bytes);
/* Of a file of tokens, likewise. `magic`: its first 4 bytes. */
enum data_format format_recognize_tokens(const char *path, int32_t magic);
/* ZD_ERR_DATA, without a place, for a record that cannot be read as `format`
 * and nothing else: it fits another format too, where none was named, or has a
 * key that is ignored but would change what is trained. */
enum zd_status format_check(
        const json_t *record, const struct data_entry *entry,
        enum data_format format);
/* Fill the document. Errors are ZD_ERR_DATA without a place, which the caller
 * adds. */
enum zd_status format_read(
        const struct reading *reading, enum data_format format);

/* --- what the rows name: record.c, conversation.c, megatron.c, llmc.c --- */

record_reader record_text, record_alpaca, record_alpaca_instruct,
        record_completion, record_chat, record_sharegpt, record_alpaca_talk,
        record_completion_talk;
bool record_is_chat(const json_t *record, const struct data_entry *entry);
bool record_is_sharegpt(const json_t *record, const struct data_entry *entry);
token_opener megatron_open, llmc_open, nanogpt_open;
/* llm.c's magic numbers: of files of tokens, and of its evaluations, which are
 * refused. */
enum { LLMC_GPT2 = 20240520, LLMC_LLAMA3 = 20240801, LLMC_EVAL = 20240522 };
/* x.idx of x.bin, or of x. */
void megatron_index_path(const char *bin, char path[PATH_MAX]);
