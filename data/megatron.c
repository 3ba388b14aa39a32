/* The index of a Megatron file:
 *
 *   9 bytes "MMIDIDX\0\0" | u64 version 1 | u8 type | u64 S | u64 D
 *   int32 lengths[S]    tokens of each sequence
 *   int64 pointers[S]   bytes from the start of the .bin
 *   int64 documents[D]  sequence index at document ends; the first is 0
 *   int8  modes[S]      of multimodal files only; not used
 *
 * It can be large: the three columns are read side by side. The sequences lie
 * in the .bin one after the other, as Megatron writes them. */
#include "data/format.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "data/token_cache.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { HEADER_BYTES = 34, LLMC_BYTES = 1024 };

struct megatron {
    char path[PATH_MAX]; /* of the index */
    uint64_t sequences, documents;
    FILE *columns[3];
};
enum { LENGTHS, POINTERS, ENDS };

static enum zd_status fail_index(const struct megatron *index, const char *why)
{
    return ZD_BAD(
            "E0443", "%s is not a valid Megatron index: %s", index->path, why);
}

static enum zd_status column_next(
        const struct megatron *index, int column, void *value, size_t bytes)
{
    return fread(value, bytes, 1, index->columns[column]) == 1
                   ? ZD_OK
                   : fail_index(index, "it cannot be read to its end");
}

static enum zd_status set_type(
        const struct megatron *index, int code, struct raw_file *file)
{
    static const int widths[] = {0,  1, -1, -2, -4,
                                 -8, 0, 0,  2}; /* < 0: signed */
    if (code < 1 || code >= (int)(sizeof widths / sizeof *widths))
        return fail_index(index, "an unknown type of tokens");
    if (widths[code] == 0)
        return fail_index(index, "its tokens are floating-point numbers");
    file->width = abs(widths[code]);
    file->is_signed = widths[code] < 0;
    return ZD_OK;
}

static enum zd_status read_header(
        struct megatron *index, int fd, uint64_t bytes, struct raw_file *file)
{
    unsigned char header[HEADER_BYTES];
    uint64_t version;
    if (bytes < sizeof header)
        return fail_index(index, "it is too short");
    ZD_TRY(fs_pread(fd, index->path, header, sizeof header, 0));
    if (memcmp(header, "MMIDIDX\0\0", 9) != 0)
        return fail_index(index, "it does not begin with MMIDIDX");
    memcpy(&version, header + 9, 8);
    memcpy(&index->sequences, header + 18, 8);
    memcpy(&index->documents, header + 26, 8);
    if (version != 1)
        return fail_index(index, "its version is not 1");
    ZD_TRY(set_type(index, header[17], file));
    if (index->sequences == 0 || index->documents < 2)
        return fail_index(index, "it holds no document");
    /* bounded first, so that the sum cannot overflow */
    if (index->sequences > bytes / 12 || index->documents > bytes / 8)
        return fail_index(index, "it is shorter than its counts promise");
    uint64_t expected =
            HEADER_BYTES + index->sequences * 12 + index->documents * 8;
    if (bytes != expected && bytes != expected + index->sequences)
        return fail_index(index, "its size does not fit its counts");
    return ZD_OK;
}

static enum zd_status open_columns(struct megatron *index)
{
    uint64_t offset = HEADER_BYTES;
    for (int i = 0; i < 3; i++) {
        int fd;
        ZD_TRY(fs_open_read(index->path, &fd, NULL));
        index->columns[i] = zd_must(fdopen(fd, "rb"));
        if (fseeko(index->columns[i], (off_t)offset, SEEK_SET) != 0)
            return fail_index(index, "it is too short");
        offset += index->sequences * (i == LENGTHS ? 4 : 8);
    }
    return ZD_OK;
}

static void close_columns(struct megatron *index)
{
    for (int i = 0; i < 3; i++)
        if (index->columns[i])
            fclose(index->columns[i]);
}

/* The next sequence, which is added to the file's. */
static enum zd_status next_sequence(
        const struct megatron *index, struct raw_file *file)
{
    int32_t length;
    int64_t pointer;
    uint64_t end = file->data_offset + file->count * (uint64_t)file->width;
    ZD_TRY(column_next(index, LENGTHS, &length, sizeof length));
    ZD_TRY(column_next(index, POINTERS, &pointer, sizeof pointer));
    if (length < 0)
        return fail_index(index, "a sequence has a negative length");
    if (file->count == 0 && pointer >= 0)
        end = file->data_offset = (uint64_t)pointer;
    if (pointer < 0 || (uint64_t)pointer != end)
        return fail_index(
                index, "its sequences do not follow each other in the .bin");
    if (end > file->bytes ||
        (uint64_t)length > (file->bytes - end) / (uint64_t)file->width)
        return fail_index(index, "a sequence lies beyond the end of the .bin");
    file->count += (uint64_t)length;
    return ZD_OK;
}

/* Empty documents are skipped. */
static enum zd_status read_columns(
        const struct megatron *index, struct raw_file *file,
        struct cache_writer *documents)
{
    int64_t border, sequence = 0;
    ZD_TRY(column_next(index, ENDS, &border, sizeof border));
    if (border != 0)
        return fail_index(index, "its first document does not begin at 0");
    for (uint64_t d = 1; d < index->documents; d++) {
        uint64_t begin = file->count;
        ZD_TRY(column_next(index, ENDS, &border, sizeof border));
        if (border < sequence)
            return fail_index(index, "its documents are not in order");
        if ((uint64_t)border > index->sequences)
            break;
        for (; sequence < border; sequence++)
            ZD_TRY(next_sequence(index, file));
        if (documents && file->count > begin)
            ZD_TRY(cache_writer_document(documents, file->begin + begin));
    }
    if (border != (int64_t)index->sequences)
        return fail_index(
                index, "its documents do not end with its last sequence");
    return ZD_OK;
}

void megatron_index_path(const char *bin, char path[PATH_MAX])
{
    size_t stem = strlen(bin);
    if (stem >= 4 && strcasecmp(bin + stem - 4, ".bin") == 0)
        stem -= 4;
    snprintf(path, PATH_MAX, "%.*s.idx", (int)stem, bin);
}

enum zd_status megatron_open(
        struct raw_file *file, struct cache_writer *documents)
{
    ZD_SCOPED(close_columns) struct megatron index = {.sequences = 0};
    uint64_t bytes;
    int fd;
    megatron_index_path(file->path, index.path);
    ZD_TRY(fs_open_read(index.path, &fd, &bytes));
    enum zd_status status = read_header(&index, fd, bytes, file);
    close(fd);
    ZD_TRY(status);
    ZD_TRY(open_columns(&index));
    return read_columns(&index, file, documents);
}

/* --- files with llm.c's header, and with none ------------------------------
 */

enum zd_status llmc_open(struct raw_file *file, struct cache_writer *documents)
{
    int32_t header[3];
    if (file->bytes < LLMC_BYTES)
        return ZD_BAD(
                "E0444",
                "%s has %llu bytes, less than the header of an llm.c file",
                file->path, (unsigned long long)file->bytes);
    ZD_TRY(fs_pread(file->fd, file->path, header, sizeof header, 0));
    if (header[0] == LLMC_EVAL)
        return ZD_BAD(
                "E0444", "%s is an llm.c evaluation file, not a file of tokens",
                file->path);
    bool is_gpt2 = header[0] == LLMC_GPT2 && header[1] == 1;
    bool is_llama3 = header[0] == LLMC_LLAMA3 && header[1] == 7;
    if (!is_gpt2 && !is_llama3)
        return ZD_BAD(
                "E0444",
                "%s is not an llm.c file of tokens: magic %d, version %d",
                file->path, header[0], header[1]);
    file->width = is_gpt2 ? 2 : 4;
    file->data_offset = LLMC_BYTES;
    uint64_t held = (file->bytes - LLMC_BYTES) / (uint64_t)file->width;
    if (header[2] <= 0 || (uint64_t)header[2] != held ||
        (file->bytes - LLMC_BYTES) % (uint64_t)file->width)
        return ZD_BAD(
                "E0444",
                "the header of %s promises %d tokens of %d bytes, but %llu "
                "bytes follow it",
                file->path, header[2], file->width,
                (unsigned long long)(file->bytes - LLMC_BYTES));
    file->count = held;
    return ZD_OK;
}

enum zd_status nanogpt_open(
        struct raw_file *file, struct cache_writer *documents)
{
    file->width = 2;
    if (file->bytes % 2)
        return ZD_BAD(
                "E0445",
                "%s has %llu bytes, not a whole number of 16-bit tokens",
                file->path, (unsigned long long)file->bytes);
    file->count = file->bytes / 2;
    return ZD_OK;
}
