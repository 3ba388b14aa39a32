/* tensorboard_record.h - the records of a TensorBoard event file.
 *
 *     u64 bytes | u32 masked crc of these 8 | data | u32 masked crc of data
 *     masked = rotate right by 15, + 0xa282ead8; crc-32c (Castagnoli)
 *     data: a protobuf Event
 *       1 double wall_time   2 int64 step   3 string file_version
 *       5 Summary { 1 Value { 1 string tag, 2 float simple_value,
 *                             8 TensorProto, 9 SummaryMetadata } }
 *       7 SessionLog { 1 enum status: 1 = START }
 *
 * Source: tensorboard/compat/proto/{event,summary,tensor}.proto and
 *         summary/writer/record_writer.py.
 * All numbers little-endian, as the machines zerod runs on. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct record_bytes { /* zeroed: empty */
    char *data;       /* malloc'd */
    size_t used, capacity;
};
void record_bytes_fini(struct record_bytes *bytes);

/* Append a value to a Summary. */
void record_add_scalar(
        struct record_bytes *summary, const char *tag, double value);
/* For the plugin "text": UTF-8, shown as Markdown. */
void record_add_text(
        struct record_bytes *summary, const char *tag, const char *text);

/* Append a record. */
void record_add_version(struct record_bytes *out, double wall_time);
/* A run that goes on: readers drop what they have of `step` and later. */
void record_add_restart(
        struct record_bytes *out, double wall_time, int64_t step);
void record_add_event(
        struct record_bytes *out, double wall_time, int64_t step,
        const struct record_bytes *summary);

uint32_t record_crc(const void *data, size_t bytes); /* masked */
