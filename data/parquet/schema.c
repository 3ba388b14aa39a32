#include "data/parquet/internal.h"

#include "base/must.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMENTS_MAX = 8192, DEPTH_MAX = 32, PATH_BYTES = 512 };
enum { REQUIRED = 0, OPTIONAL = 1, REPEATED = 2 };
enum { NOTHING, AS_LIST, AS_MAP, AS_DECIMAL, AS_UNSIGNED };

/* --- the list of elements ------------------------------------------------- */

/* An element of the footer's list, which is depth first. */
struct element {
    const char *name;
    size_t name_bytes;
    int type; /* -1: a group */
    int repetition, children;
    int meaning; /* the parts of its annotation that we need */
};

struct builder {
    const struct parquet_file *file;
    struct parquet_schema *schema;
    const struct element *elements;
    size_t count, next;
    int depth;
    char path[PATH_BYTES];
};

static int meaning_of_converted(int64_t type)
{
    return type == 3                  ? AS_LIST
           : type == 1 || type == 2   ? AS_MAP
           : type == 5                ? AS_DECIMAL
           : type >= 11 && type <= 14 ? AS_UNSIGNED
                                      : NOTHING;
}

/* Reads the union LogicalType, and whether INTEGER is signed. */
static int read_logical(struct thrift *thrift)
{
    int meaning = NOTHING;
    struct thrift_field kind = {0};
    while (thrift_next(thrift, &kind)) {
        int64_t sign[3] = {0, 0, 1};
        meaning = kind.id == 2   ? AS_MAP
                  : kind.id == 3 ? AS_LIST
                  : kind.id == 5 ? AS_DECIMAL
                                 : NOTHING;
        if (kind.id == 10 && kind.type == THRIFT_STRUCT)
            thrift_integers(thrift, sign, 3);
        else
            thrift_skip(thrift, kind.type);
        meaning = sign[2] ? meaning : AS_UNSIGNED;
    }
    return meaning;
}

static struct element read_element(struct thrift *thrift)
{
    struct element element = {.name = ""};
    struct thrift_field field = {0};
    int64_t of[7] = {[1] = -1};
    while (thrift_next(thrift, &field)) {
        if (field.id == 4)
            element.name = thrift_string(thrift, &field, &element.name_bytes);
        else if (field.id == 10 && field.type == THRIFT_STRUCT)
            element.meaning = read_logical(thrift);
        else if (field.id > 0 && field.id < 7)
            of[field.id] = thrift_integer(thrift, &field);
        else
            thrift_skip(thrift, field.type);
    }
    element.type = (int)of[1];
    element.repetition = (int)of[3];
    element.children = (int)of[5];
    if (!element.meaning)
        element.meaning = meaning_of_converted(of[6] ? of[6] : -1);
    return element;
}

/* --- the tree ------------------------------------------------------------- */

static bool has_name(const struct element *element, const char *name)
{
    return strlen(name) == element->name_bytes &&
           memcmp(element->name, name, element->name_bytes) == 0;
}

/* Builds the next element at its parent's levels. */
static enum zd_status build(
        struct builder *b, int def, int rep, struct parquet_node *node);

static enum zd_status build_leaf(
        struct builder *b, const struct element *element,
        struct parquet_node *node)
{
    static const char *const types[] = {
            [PARQUET_INT96] = "the type INT96",
            [PARQUET_FIXED] = "the type FIXED_LEN_BYTE_ARRAY"};
    struct parquet_schema *schema = b->schema;
    int type = element->type;
    if (type > PARQUET_FIXED)
        return parquet_damaged(b->file, b->path, "its type is number %d", type);
    if (type == PARQUET_INT96 || type == PARQUET_FIXED)
        return parquet_unsupported(b->file, b->path, "%s", types[type]);
    if (element->meaning == AS_DECIMAL)
        return parquet_unsupported(b->file, b->path, "the type DECIMAL");
    schema->leaves[schema->leaf_count++] = (struct parquet_leaf){
            .path = zd_must(strdup(b->path)),
            .type = (enum parquet_type)type,
            .is_unsigned = element->meaning == AS_UNSIGNED,
            .max_def = node->def,
            .max_rep = node->rep};
    node->kind = PARQUET_LEAF;
    return ZD_OK;
}

static enum zd_status build_children(
        struct builder *b, int count, struct parquet_node *node)
{
    size_t left = b->count - b->next;
    if (count <= 0 || (size_t)count > left)
        return parquet_damaged(
                b->file, b->path,
                "its group has %d columns, of which %zu follow", count, left);
    node->kind = PARQUET_GROUP;
    node->children = zd_array((size_t)count, sizeof *node->children);
    node->child_count = count;
    for (int i = 0; i < count; i++)
        ZD_TRY(build(b, node->def, node->rep, &node->children[i]));
    return ZD_OK;
}

/* Builds an element at the node's levels, without its repetition; b->next is
 * after the element. */
static enum zd_status build_body(
        struct builder *b, const struct element *element,
        struct parquet_node *node);

static void make_list(struct parquet_node *node)
{
    node->kind = PARQUET_LIST;
    node->rep++;
    node->children = zd_array(1, sizeof *node->children);
    node->child_count = 1;
}

/* A list of what `element` is without its repetition. */
static enum zd_status build_elements(
        struct builder *b, const struct element *element,
        struct parquet_node *node)
{
    make_list(node);
    struct parquet_node *child = node->children;
    child->def = node->def + 1;
    child->rep = node->rep;
    child->first_leaf = b->schema->leaf_count;
    enum zd_status status = build_body(b, element, child);
    child->leaf_count = b->schema->leaf_count - child->first_leaf;
    return status;
}

/* A list: its group has one repeated field, which contains the element or, in
 * files of old writers, is the element. (LogicalTypes.md,
 * "Backward-compatibility rules") */
static enum zd_status build_list(
        struct builder *b, const struct element *element,
        struct parquet_node *node)
{
    const struct element *repeated = &b->elements[b->next];
    char tuple[PATH_BYTES];
    if (element->children != 1 || b->next >= b->count ||
        repeated->repetition != REPEATED)
        return parquet_unsupported(
                b->file, b->path, "a list that is not one repeated field");
    ZD_PRINT(tuple, "%.*s_tuple", (int)element->name_bytes, element->name);
    bool is_element =
            repeated->type >= 0 || repeated->children != 1 ||
            has_name(repeated, "array") || has_name(repeated, tuple) ||
            (b->next + 1 < b->count && repeated[1].repetition == REPEATED);
    b->next++;
    if (is_element)
        return build_elements(b, repeated, node);
    make_list(node);
    return build(b, node->def + 1, node->rep, node->children);
}

static enum zd_status build_body(
        struct builder *b, const struct element *element,
        struct parquet_node *node)
{
    if (element->meaning == AS_MAP)
        return parquet_unsupported(b->file, b->path, "a MAP");
    if (element->type >= 0)
        return build_leaf(b, element, node);
    if (b->depth >= DEPTH_MAX)
        return parquet_damaged(
                b->file, NULL, "its schema is deeper than %d", DEPTH_MAX);
    b->depth++;
    enum zd_status status =
            element->meaning == AS_LIST
                    ? build_list(b, element, node)
                    : build_children(b, element->children, node);
    b->depth--;
    return status;
}

static enum zd_status build(
        struct builder *b, int def, int rep, struct parquet_node *node)
{
    size_t length = strlen(b->path);
    if (b->next >= b->count)
        return parquet_damaged(b->file, NULL, "its schema ends early");
    const struct element *element = &b->elements[b->next++];
    snprintf(
            b->path + length, PATH_BYTES - length, "%s%.*s", length ? "." : "",
            (int)element->name_bytes, element->name);
    *node = (struct parquet_node){
            .name = element->name,
            .name_bytes = element->name_bytes,
            .is_optional = element->repetition == OPTIONAL,
            .def = def + (element->repetition == OPTIONAL),
            .rep = rep,
            .first_leaf = b->schema->leaf_count};
    /* REPEATED outside a list's group: a list that cannot be null */
    enum zd_status status = element->repetition == REPEATED
                                    ? build_elements(b, element, node)
                                    : build_body(b, element, node);
    b->path[length] = '\0';
    node->leaf_count = b->schema->leaf_count - node->first_leaf;
    return status;
}

enum zd_status parquet_schema_read(
        const struct parquet_file *file, struct thrift *thrift, size_t count,
        struct parquet_schema *schema)
{
    if (count < 2 || count > ELEMENTS_MAX)
        return parquet_damaged(
                file, NULL, "its schema has %zu elements, not 2 to %d", count,
                ELEMENTS_MAX);
    ZD_FREED struct element *elements = zd_array(count, sizeof *elements);
    for (size_t i = 0; i < count; i++)
        elements[i] = read_element(thrift);
    struct builder b = {file, schema, elements, count, 1, 0, ""};
    schema->leaves = zd_array(count, sizeof *schema->leaves);
    if (thrift->is_bad)
        return parquet_damaged(file, NULL, "its schema cannot be read");
    ZD_TRY(build_children(&b, elements[0].children, &schema->root));
    schema->root.leaf_count = schema->leaf_count;
    return b.next == count ? ZD_OK
                           : parquet_damaged(
                                     file, NULL,
                                     "its schema has %zu elements in no group",
                                     count - b.next);
}

static void free_children(struct parquet_node *node)
{
    for (int i = 0; i < node->child_count; i++)
        free_children(&node->children[i]);
    free(node->children);
}

void parquet_schema_free(struct parquet_schema *schema)
{
    free_children(&schema->root);
    for (int i = 0; i < schema->leaf_count; i++)
        free(schema->leaves[i].path);
    free(schema->leaves);
    *schema = (struct parquet_schema){0};
}
