/* format.h - what a data format is: the table that formats.inc fills. */
#pragma once

#include "data/chat.h"
#include "data/source.h"

/* --- pre-tokenized files, read where they are:
 *
 *   megatron   x.bin (tokens) and x.idx (which of them make documents)
 *   llm.c      1024 bytes of header, then uint16 (GPT-2) or uint32 (Llama 3)
 *   nanoGPT    uint16 from the first byte
 *
 * The tokens of all files form one stream.
 *
 * Source:  Megatron-LM indexed_dataset.py, llm.c dataloader.h, nanoGPT. */

struct cache_writer; /* token_cache.h */

struct raw_file {
    const char *path; /* borrowed from the list of files */
    int fd;
    uint64_t bytes;
    uint64_t data_offset;  /* bytes before the first token */
    uint64_t begin, count; /* in the stream */
    int width;             /* bytes of a token */
    bool is_signed;
};

struct raw {
    struct raw_file *files;
    int file_count;
    uint64_t count; /* tokens of the stream */
    unsigned char *scratch;
    size_t scratch_bytes;
};

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
struct text_buffer;
void format_keys(const struct data_entry *entry, struct text_buffer *out);
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

/* --- what the rows name: record.c, conversation.c, megatron.c --- */

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

/* --- record.c: what the readers of records share, and other names of keys ---
 */

/* What this entry calls the key "text" or "messages"; any other is itself. */
const char *record_key(const struct data_entry *entry, const char *key);
/* The value under `key`; NULL when it is absent or null. */
const json_t *record_get(const json_t *record, const char *key);
/* The string under `key`; ZD_ERR_DATA when it is missing or not a string. */
enum zd_status record_get_string(
        const json_t *object, const char *key, const json_t **string_out);

/* The strings of an Alpaca record; `input` NULL: there is none. ZD_ERR_DATA as
 * above. */
struct alpaca {
    const json_t *instruction, *input, *output;
};
enum zd_status record_get_alpaca(
        const json_t *record, struct alpaca *alpaca_out);

/* Absent, null, "", [] or {}. */
bool record_is_empty(const json_t *value);
/* ZD_ERR_DATA: `key` of `what` is not used. `help` may be NULL. */
enum zd_status record_refuse_key(
        const char *key, const char *what, const char *help);
/* The same, unless there is nothing under the key. */
enum zd_status record_refuse_filled(
        const json_t *record, const char *key, const char *what,
        const char *help);
/* Rows for DPO, ORPO and reward models (chosen, rejected), or KTO (label). */
enum zd_status record_check_preference(const json_t *record);
enum zd_status record_refuse_preference(const char *keys);

/* Records whose keys and roles have other names than ours. */

/* ZD_ERR_CONFIG for an item of entry->columns or entry->roles that is not
 * "theirs=ours". */
enum zd_status columns_check(const struct data_entry *entry);
/* The record as the formats know it. With entry->columns it has these alone,
 * under our names; a role of entry->roles gets our name in every message.
 * Messages of ShareGPT have their role and text under "from" and "value",
 * whatever entry->role_field and content_field called them. Takes the reference
 * to `record` and returns one. */
json_t *columns_apply(const struct data_entry *entry, json_t *record);
