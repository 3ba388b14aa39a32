/* parquet.c - reads the footer, and builds rows from the leaves' entries. */
#include "data/parquet/parquet.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "data/parquet/internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FOOTER_MAX = 64 << 20, TAIL_BYTES = 8 };

struct parquet {
    struct parquet_file file;
    struct parquet_buffer footer;
    struct parquet_schema schema;
    struct parquet_column *columns; /* of each leaf */
    struct thrift groups;           /* row groups left in the footer */
    size_t groups_left;
    int64_t rows_left; /* of the row group */
    char *row;         /* the row being built; `most` limits its bytes */
    size_t most, row_bytes, row_capacity;
};

/* --- the footer ----------------------------------------------------------- */

static enum zd_status read_metadata(struct parquet *p)
{
    struct parquet_file *file = &p->file;
    struct thrift thrift = {
            .at = p->footer.bytes, .end = p->footer.bytes + p->footer.capacity};
    struct thrift_field field = {0};
    while (thrift_next(&thrift, &field)) {
        if (field.id == 2 && !p->schema.leaves) {
            size_t count = thrift_structs(&thrift, &field);
            ZD_TRY(parquet_schema_read(file, &thrift, count, &p->schema));
        } else if (field.id == 4) {
            size_t count = thrift_structs(&thrift, &field);
            p->groups = thrift;
            p->groups_left = count;
            for (size_t i = 0; i < count && !thrift.is_bad; i++)
                thrift_skip(&thrift, THRIFT_STRUCT);
        } else {
            thrift_skip(&thrift, field.type);
        }
    }
    if (thrift.is_bad || !p->schema.leaves)
        return parquet_damaged(file, NULL, "its footer cannot be read");
    return ZD_OK;
}

static enum zd_status read_footer(struct parquet *p)
{
    struct parquet_file *file = &p->file;
    unsigned char tail[TAIL_BYTES];
    uint32_t bytes;
    if (file->bytes < 4 + TAIL_BYTES)
        return parquet_damaged(file, NULL, "it ends early");
    ZD_TRY(fs_pread(
            file->fd, file->path, tail, sizeof tail, file->bytes - TAIL_BYTES));
    if (memcmp(tail + 4, "PARE", 4) == 0)
        return ZD_BAD(
                "E0453", "%s is encrypted, which zerod does not read",
                file->path);
    if (memcmp(tail + 4, "PAR1", 4) != 0)
        return parquet_damaged(
                file, NULL,
                "it does not end with a footer: it is cut short, or no Parquet "
                "file");
    memcpy(&bytes, tail, sizeof bytes);
    if (bytes == 0 || bytes > file->bytes - 4 - TAIL_BYTES ||
        bytes > FOOTER_MAX)
        return parquet_damaged(
                file, NULL, "its footer has %" PRIu32 " bytes", bytes);
    ZD_TRY(parquet_reserve(file, &p->footer, bytes));
    ZD_TRY(fs_pread(
            file->fd, file->path, p->footer.bytes, bytes,
            file->bytes - TAIL_BYTES - bytes));
    return read_metadata(p);
}

enum zd_status parquet_open(
        int fd, const char *path, uint64_t bytes, struct parquet **out)
{
    struct parquet *p = zd_array(1, sizeof *p);
    p->file = (struct parquet_file){.fd = fd, .path = path, .bytes = bytes};
    enum zd_status status = read_footer(p);
    if (status != ZD_OK) {
        parquet_close(p);
        return status;
    }
    int count = p->schema.leaf_count;
    p->columns = zd_array((size_t)count, sizeof *p->columns);
    for (int i = 0; i < count; i++) {
        p->columns[i].file = &p->file;
        p->columns[i].leaf = &p->schema.leaves[i];
    }
    *out = p;
    return ZD_OK;
}

void parquet_close(struct parquet *p)
{
    if (!p)
        return;
    for (int i = 0; p->columns && i < p->schema.leaf_count; i++)
        column_fini(&p->columns[i]);
    parquet_release(&p->file, &p->file.packed);
    parquet_release(&p->file, &p->footer);
    parquet_schema_free(&p->schema);
    free(p->columns);
    free(p->row);
    free(p);
}

uint64_t parquet_consumed(const struct parquet *p)
{
    uint64_t most = 0;
    for (int i = 0; i < p->schema.leaf_count; i++)
        if (p->columns[i].at > most)
            most = p->columns[i].at;
    return most;
}

/* --- row groups ----------------------------------------------------------- */

/* ColumnMetaData's fields by their ids. */
enum { TYPE = 1, CODEC = 4, ENTRIES = 5, BYTES = 7, DATA = 9, DICTIONARY = 11 };
enum { FACTS = 12 };

/* False: the pages are encrypted or in another file. */
static bool read_chunk(struct thrift *thrift, int64_t of[FACTS])
{
    struct thrift_field field = {0};
    bool is_here = true, has_facts = false;
    while (thrift_next(thrift, &field)) {
        is_here &= field.id != 1 && field.id != 8;
        if (field.id == 3 && field.type == THRIFT_STRUCT) {
            thrift_integers(thrift, of, FACTS);
            has_facts = true;
        } else {
            thrift_skip(thrift, field.type);
        }
    }
    return is_here && has_facts;
}

static enum zd_status begin_chunk(
        struct parquet_column *column, const int64_t of[FACTS])
{
    int64_t begin = of[DATA], most = (int64_t)column->file->bytes - TAIL_BYTES;
    if (of[DICTIONARY] > 0 && of[DICTIONARY] < begin)
        begin = of[DICTIONARY];
    /* pyarrow writes a table without rows as one row group, and no data page
     * for a chunk without values. */
    if (of[ENTRIES] == 0)
        return column_begin(
                column, &(struct parquet_chunk){.begin = 4, .end = 4});
    if (of[TYPE] != (int64_t)column->leaf->type)
        return column_damaged(
                column, "its chunk has another type than the schema says");
    if (begin < 4 || of[BYTES] < 0 || begin > most || of[ENTRIES] < 0 ||
        of[BYTES] > most - begin)
        return column_damaged(column, "its chunk is not inside the file");
    const struct parquet_chunk chunk = {
            .begin = (uint64_t)begin,
            .end = (uint64_t)(begin + of[BYTES]),
            .entries = of[ENTRIES],
            .codec = (int)of[CODEC]};
    return column_begin(column, &chunk);
}

static enum zd_status begin_chunks(struct parquet *p, size_t count)
{
    struct thrift *thrift = &p->groups;
    if (count != (size_t)p->schema.leaf_count)
        return parquet_damaged(
                &p->file, NULL, "a row group has %zu columns, the schema %d",
                count, p->schema.leaf_count);
    for (size_t i = 0; i < count; i++) {
        int64_t of[FACTS] = {0};
        struct parquet_column *column = &p->columns[i];
        bool is_here = read_chunk(thrift, of);
        if (thrift->is_bad)
            break;
        if (!is_here)
            return column_unsupported(
                    column, "pages that are encrypted, or in another file");
        ZD_TRY(begin_chunk(column, of));
    }
    return ZD_OK;
}

static enum zd_status begin_group(struct parquet *p)
{
    struct thrift *thrift = &p->groups;
    struct thrift_field field = {0};
    bool has_columns = false;
    p->groups_left--;
    p->rows_left = 0;
    while (thrift_next(thrift, &field)) {
        if (field.id == 1 && !has_columns) {
            size_t count = thrift_structs(thrift, &field);
            ZD_TRY(begin_chunks(p, count));
            has_columns = true;
        } else if (field.id == 3) {
            p->rows_left = thrift_integer(thrift, &field);
        } else {
            thrift_skip(thrift, field.type);
        }
    }
    if (thrift->is_bad || p->rows_left < 0 || !has_columns)
        return parquet_damaged(&p->file, NULL, "a row group cannot be read");
    return ZD_OK;
}

/* --- a row as text -------------------------------------------------------- */

static enum zd_status put(struct parquet *p, const void *bytes, size_t count)
{
    if (count > p->most - p->row_bytes) {
        long long row = (long long)p->file.row;
        ZD_BAD("E0440", "row %lld of %s is longer than a record may be", row,
               p->file.path);
        return zd_fail_where("%s:row %lld", p->file.path, row);
    }
    if (p->row_bytes + count > p->row_capacity)
        ZD_GROW(p->row, p->row_capacity, p->row_bytes + count);
    memcpy(p->row + p->row_bytes, bytes, count);
    p->row_bytes += count;
    return ZD_OK;
}

static enum zd_status put_word(struct parquet *p, const char *word)
{
    return put(p, word, strlen(word));
}

static enum zd_status put_string(
        struct parquet *p, const unsigned char *bytes, size_t count)
{
    char escaped[8];
    ZD_TRY(put_word(p, "\""));
    for (size_t i = 0, plain; i < count; i += plain + 1) {
        for (plain = 0; i + plain < count && bytes[i + plain] >= ' ' &&
                        bytes[i + plain] != '"' && bytes[i + plain] != '\\';)
            plain++;
        if (plain > 0)
            ZD_TRY(put(p, bytes + i, plain));
        if (i + plain == count)
            break;
        ZD_PRINT(escaped, "\\u%04x", bytes[i + plain]);
        ZD_TRY(put_word(p, escaped));
    }
    return put_word(p, "\"");
}

static enum zd_status put_value(
        struct parquet *p, const struct parquet_leaf *leaf,
        const struct parquet_value *value)
{
    char number[40];
    float single;
    double real;
    switch (leaf->type) {
    case PARQUET_BOOLEAN:
        return put_word(p, value->integer ? "true" : "false");
    case PARQUET_BYTE_ARRAY:
        return put_string(p, value->bytes, value->count);
    case PARQUET_FLOAT:
    case PARQUET_DOUBLE:
        memcpy(&single, &value->integer, sizeof single);
        memcpy(&real, &value->integer, sizeof real);
        real = leaf->type == PARQUET_FLOAT ? (double)single : real;
        if (!isfinite(real))
            return put_word(p, "null");
        ZD_PRINT(number, "%.17g", real);
        if (!strpbrk(number, ".e"))
            strcat(number, ".0");
        break;
    default:
        if (!leaf->is_unsigned)
            ZD_PRINT(number, "%" PRId64, value->integer);
        else
            ZD_PRINT(
                    number, "%" PRIu64,
                    leaf->type == PARQUET_INT32
                            ? (uint64_t)(uint32_t)value->integer
                            : (uint64_t)value->integer);
    }
    return put_word(p, number);
}

/* --- a row from its entries -----------------------------------------------
 *
 * Every leaf below a list or a null node must say the same of it, or the file
 * lies. */

static enum zd_status fail_levels(
        const struct parquet_column *column, const char *what)
{
    return column_damaged(column, "its levels %s", what);
}

/* Writes `word` and skips an entry in each leaf of the node; its definition
 * level must be below `def`. */
static enum zd_status take_absent(
        struct parquet *p, const struct parquet_node *node, int def,
        const char *word)
{
    for (int i = 0; i < node->leaf_count; i++) {
        struct parquet_column *column = &p->columns[node->first_leaf + i];
        if (column->def >= def)
            return fail_levels(
                    column,
                    "have a value where those of its neighbor have none");
        ZD_TRY(column_advance(column));
    }
    return put_word(p, word);
}

static enum zd_status put_node(
        struct parquet *p, const struct parquet_node *node);

/* *more_out: the next entries continue the list. */
static enum zd_status list_goes_on(
        const struct parquet *p, const struct parquet_node *node,
        bool *more_out)
{
    const struct parquet_column *first = &p->columns[node->first_leaf];
    *more_out = first->rep == node->rep;
    for (int i = 0; i < node->leaf_count; i++)
        if (first[i].rep > node->rep ||
            (first[i].rep == node->rep) != *more_out)
            return fail_levels(
                    &first[i],
                    "make a list of another length than its neighbor's");
    return ZD_OK;
}

static enum zd_status put_list(
        struct parquet *p, const struct parquet_node *node)
{
    bool more = true;
    if (p->columns[node->first_leaf].def <= node->def)
        return take_absent(p, node, node->def + 1, "[]");
    ZD_TRY(put_word(p, "["));
    for (const char *before = ""; more; before = ",") {
        ZD_TRY(put_word(p, before));
        ZD_TRY(put_node(p, node->children));
        ZD_TRY(list_goes_on(p, node, &more));
    }
    return put_word(p, "]");
}

static enum zd_status put_group(
        struct parquet *p, const struct parquet_node *node)
{
    ZD_TRY(put_word(p, "{"));
    for (int i = 0; i < node->child_count; i++) {
        const struct parquet_node *child = &node->children[i];
        ZD_TRY(put_word(p, i ? "," : ""));
        ZD_TRY(put_string(
                p, (const unsigned char *)child->name, child->name_bytes));
        ZD_TRY(put_word(p, ":"));
        ZD_TRY(put_node(p, child));
    }
    return put_word(p, "}");
}

static enum zd_status put_node(
        struct parquet *p, const struct parquet_node *node)
{
    struct parquet_column *column = &p->columns[node->first_leaf];
    struct parquet_value value = {0};
    if (column->def < node->def)
        return node->is_optional ? take_absent(p, node, node->def, "null")
                                 : fail_levels(
                                           column, "have no value where those "
                                                   "of its neighbor have one");
    if (node->kind == PARQUET_LIST)
        return put_list(p, node);
    if (node->kind == PARQUET_GROUP)
        return put_group(p, node);
    ZD_TRY(column_value(column, &value));
    ZD_TRY(put_value(p, column->leaf, &value));
    return column_advance(column);
}

/* Before the next row, or after the last of a row group. */
static enum zd_status check_row_begins(const struct parquet *p, bool ends)
{
    for (int i = 0; i < p->schema.leaf_count; i++)
        if (p->columns[i].rep != 0 || p->columns[i].is_at_end != ends)
            return fail_levels(
                    &p->columns[i],
                    "make another number of rows than there are");
    return ZD_OK;
}

enum zd_status parquet_row(
        struct parquet *p, size_t most, const char **text_out,
        size_t *bytes_out)
{
    enum { KEEP_BYTES = 4 << 20 };
    *bytes_out = 0;
    while (p->rows_left == 0) {
        if (p->groups_left == 0)
            return ZD_OK;
        ZD_TRY(begin_group(p));
        if (p->rows_left == 0)
            ZD_TRY(check_row_begins(p, true));
    }
    if (p->row_capacity > KEEP_BYTES) {
        free(p->row);
        p->row = NULL;
        p->row_capacity = 0;
    }
    p->row_bytes = 0;
    p->file.row++;
    p->most = most;
    ZD_TRY(check_row_begins(p, false));
    ZD_TRY(put_group(p, &p->schema.root));
    ZD_TRY(put_word(p, "\n"));
    *text_out = p->row;
    *bytes_out = p->row_bytes;
    return --p->rows_left == 0 ? check_row_begins(p, true) : ZD_OK;
}
