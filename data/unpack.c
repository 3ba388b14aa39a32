/* unpack.c - files that are compressed, read by the compressors' own libraries.
 */
#include "data/stream_source.h"

#include "base/file/fs.h"
#include "base/must.h"

#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

enum { INPUT_BYTES = 256 << 10 };

/* A part of the file, not decompressed yet. */
struct input {
    size_t at, end; /* end 0: the end of the file */
    unsigned char bytes[INPUT_BYTES];
};

static enum zd_status fill(struct data_stream *stream, struct input *input)
{
    uint64_t left = stream->file->bytes - stream->at;
    input->at = 0;
    input->end = left < INPUT_BYTES ? (size_t)left : INPUT_BYTES;
    ZD_TRY(fs_pread(
            stream->fd, stream->file->path, input->bytes, input->end,
            stream->at));
    stream->at += input->end;
    return ZD_OK;
}

static enum zd_status fail_packed(
        const struct data_stream *stream, const char *what)
{
    return ZD_FAIL(ZD_ERR_DATA, "E0451", "%s: %s", stream->file->path, what);
}

/* --- gzip: RFC 1952, members one after the other ---------------------------
 */

struct gzip {
    z_stream z;
    struct input input;
    bool in_member, has_member; /* one is being read; one was read whole */
};

static enum zd_status gzip_open(struct data_stream *stream)
{
    struct gzip *gzip = zd_array(1, sizeof *gzip);
    stream->state = gzip;
    if (inflateInit2(&gzip->z, 15 + 16) != Z_OK)
        zd_out_of_memory();
    return ZD_OK;
}

static enum zd_status check_inflated(
        const struct data_stream *stream, int result)
{
    const struct gzip *gzip = stream->state;
    if (result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR)
        return ZD_OK;
    if (result == Z_MEM_ERROR)
        zd_out_of_memory();
    if (gzip->has_member && gzip->z.total_out == 0)
        return fail_packed(
                stream, "what follows its last gzip member is not gzip");
    return ZD_FAIL(
            ZD_ERR_DATA, "E0451", "%s is damaged: gzip says \"%s\"",
            stream->file->path, gzip->z.msg ? gzip->z.msg : "no data");
}

static enum zd_status gzip_read(
        struct data_stream *stream, char *text, size_t bytes, size_t *bytes_out)
{
    struct gzip *gzip = stream->state;
    struct input *input = &gzip->input;
    z_stream *z = &gzip->z;
    unsigned want = bytes < 1u << 30 ? (unsigned)bytes : 1u << 30;
    z->next_out = (Bytef *)text;
    z->avail_out = want;
    while (z->avail_out == want) {
        if (input->at == input->end)
            ZD_TRY(fill(stream, input));
        if (input->end == 0 && gzip->in_member)
            return fail_packed(stream, "the file ends inside a gzip member");
        if (input->end == 0)
            break;
        gzip->in_member = true;
        z->next_in = input->bytes + input->at;
        z->avail_in = (unsigned)(input->end - input->at);
        int result = inflate(z, Z_NO_FLUSH);
        ZD_TRY(check_inflated(stream, result));
        input->at = input->end - z->avail_in;
        if (result == Z_STREAM_END) {
            gzip->in_member = false;
            gzip->has_member = true;
            inflateReset(z);
        }
    }
    *bytes_out = want - z->avail_out;
    return ZD_OK;
}

static void gzip_close(struct data_stream *stream)
{
    struct gzip *gzip = stream->state;
    if (gzip)
        inflateEnd(&gzip->z);
    free(gzip);
}

const struct container gzip_container = {gzip_open, gzip_read, gzip_close};

/* --- zstd: RFC 8878, frames one after the other ----------------------------
 *
 * The library's own limit of a window is kept: `zstd -d` has the same without
 * --long. */

struct zstd {
    ZSTD_DStream *z;
    struct input input;
    bool in_frame, has_frame;
};

static enum zd_status zstd_open(struct data_stream *stream)
{
    struct zstd *zstd = zd_array(1, sizeof *zstd);
    stream->state = zstd;
    zstd->z = zd_must(ZSTD_createDStream());
    ZSTD_DCtx_setParameter(zstd->z, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX);
    return ZD_OK;
}

static enum zd_status fail_zstd(const struct data_stream *stream, size_t result)
{
    const struct zstd *zstd = stream->state;
    switch (ZSTD_getErrorCode(result)) {
    case ZSTD_error_memory_allocation:
        zd_out_of_memory();
    case ZSTD_error_frameParameter_windowTooLarge:
        ZD_FAIL(ZD_ERR_DATA, "E0451",
                "%s was compressed with a window above 128 MiB",
                stream->file->path);
        return zd_fail_help(
                "compress it again without --long, or with --long=27");
    case ZSTD_error_prefix_unknown:
        if (zstd->has_frame)
            return fail_packed(
                    stream, "what follows its last zstd frame is not zstd");
        break;
    default:
        break;
    }
    return ZD_FAIL(
            ZD_ERR_DATA, "E0451", "%s is damaged: zstd says \"%s\"",
            stream->file->path, ZSTD_getErrorName(result));
}

static enum zd_status zstd_read(
        struct data_stream *stream, char *text, size_t bytes, size_t *bytes_out)
{
    struct zstd *zstd = stream->state;
    struct input *input = &zstd->input;
    ZSTD_outBuffer out = {text, bytes, 0};
    bool may_hold_more = zstd->in_frame; /* text that is not given yet */
    while (out.pos == 0) {
        if (input->at == input->end && !may_hold_more)
            ZD_TRY(fill(stream, input));
        if (input->end == 0 && !may_hold_more && zstd->in_frame)
            return fail_packed(stream, "the file ends inside a zstd frame");
        if (input->end == 0 && !may_hold_more)
            break;
        ZSTD_inBuffer in = {input->bytes, input->end, input->at};
        size_t result = ZSTD_decompressStream(zstd->z, &out, &in);
        if (ZSTD_isError(result))
            return fail_zstd(stream, result);
        may_hold_more = false;
        input->at = in.pos;
        zstd->in_frame = result != 0;
        zstd->has_frame |= result == 0;
    }
    *bytes_out = out.pos;
    return ZD_OK;
}

static void zstd_close(struct data_stream *stream)
{
    struct zstd *zstd = stream->state;
    if (zstd)
        ZSTD_freeDStream(zstd->z);
    free(zstd);
}

const struct container zstd_container = {zstd_open, zstd_read, zstd_close};
