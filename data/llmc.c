/* llmc.c - files of tokens with llm.c's header, and nanoGPT's, with none. Their
 * documents are found as their tokens are read. */
#include "data/format.h"

#include "base/file/fs.h"

enum { HEADER_BYTES = 1024 };

enum zd_status llmc_open(struct raw_file *file, struct cache_writer *documents)
{
    int32_t header[3];
    if (file->bytes < HEADER_BYTES)
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
    file->data_offset = HEADER_BYTES;
    uint64_t held = (file->bytes - HEADER_BYTES) / (uint64_t)file->width;
    if (header[2] <= 0 || (uint64_t)header[2] != held ||
        (file->bytes - HEADER_BYTES) % (uint64_t)file->width)
        return ZD_BAD(
                "E0444",
                "the header of %s promises %d tokens of %d bytes, but %llu "
                "bytes follow it",
                file->path, header[2], file->width,
                (unsigned long long)(file->bytes - HEADER_BYTES));
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
