/* yaml.c - YAML as JSON. */
#include "base/file/yaml.h"
#include "base/must.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

enum { NODES_MAX = 100000, DEPTH_MAX = 64, ANCHORS_MAX = 1000 };
static const char too_much[] = "it is too deep, or has too many values";

struct reader {
    yaml_document_t document;
    const char *name;
    int nodes;
};

static enum zd_status fail(
        const char *name, const yaml_mark_t *mark, const char *what)
{
    ZD_BAD("E0221", "not valid YAML: %s", what);
    zd_fail_where("%s:%zu:%zu", name, mark->line + 1, mark->column + 1);
    return ZD_ERR_DATA;
}

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcasecmp(text, *words) == 0)
            return true;
    return false;
}

/* NULL: a number out of a double's range. */
static json_t *plain_value(const char *text)
{
    static const char *const nulls[] = {"", "~", "null", NULL};
    static const char *const yes[] = {"true", "yes", "on", NULL};
    static const char *const no[] = {"false", "no", "off", NULL};
    char *end;
    if (is_one_of(text, nulls))
        return json_null();
    if (is_one_of(text, yes))
        return json_true();
    if (is_one_of(text, no))
        return json_false();
    if (strspn(text, "+-.0123456789eE_") != strlen(text))
        return json_string(text);
    errno = 0;
    long long integer = strtoll(text, &end, 10);
    if (!*end && errno == 0)
        return json_integer(integer);
    errno = 0;
    double real = strtod(text, &end);
    if (*end)
        return json_string(text);
    /* underflow is refused like overflow, which json_real refuses */
    return real == 0 && errno == ERANGE ? NULL : json_real(real);
}

static enum zd_status read_node(
        struct reader *reader, int index, int depth, json_t **out);

static enum zd_status read_list(
        struct reader *reader, const yaml_node_t *node, int depth, json_t *list)
{
    for (yaml_node_item_t *item = node->data.sequence.items.start;
         item < node->data.sequence.items.top; item++) {
        json_t *value;
        ZD_TRY(read_node(reader, *item, depth + 1, &value));
        json_array_append_new(list, value);
    }
    return ZD_OK;
}

static enum zd_status read_pairs(
        struct reader *reader, const yaml_node_t *node, int depth,
        json_t *object)
{
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key =
                yaml_document_get_node(&reader->document, pair->key);
        json_t *value;
        if (!key || key->type != YAML_SCALAR_NODE)
            return fail(
                    reader->name, &node->start_mark,
                    "a key is not a plain value");
        const char *name = (const char *)key->data.scalar.value;
        if (strlen(name) != key->data.scalar.length)
            return fail(reader->name, &key->start_mark, "a key with a NUL");
        if (json_object_get(object, name))
            return fail(
                    reader->name, &key->start_mark, "the key is given twice");
        ZD_TRY(read_node(reader, pair->value, depth + 1, &value));
        json_object_set_new(object, name, value);
    }
    return ZD_OK;
}

static enum zd_status read_node(
        struct reader *reader, int index, int depth, json_t **out)
{
    const yaml_node_t *node = yaml_document_get_node(&reader->document, index);
    enum zd_status status = ZD_OK;
    if (!node || ++reader->nodes > NODES_MAX || depth > DEPTH_MAX) {
        const yaml_mark_t mark = {0};
        return fail(reader->name, node ? &node->start_mark : &mark, too_much);
    }
    if (node->type == YAML_SCALAR_NODE) {
        const char *text = (const char *)node->data.scalar.value;
        if (strlen(text) != node->data.scalar.length)
            return fail(reader->name, &node->start_mark, "a value with a NUL");
        *out = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE
                       ? plain_value(text)
                       : json_string(text);
        if (!*out)
            return fail(
                    reader->name, &node->start_mark,
                    "a number out of range, or text that is not UTF-8");
    } else if (node->type == YAML_SEQUENCE_NODE) {
        *out = json_array();
        status = read_list(reader, node, depth, *out);
    } else {
        *out = json_object();
        status = read_pairs(reader, node, depth, *out);
    }
    if (status != ZD_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return status;
}

/* There must be one document. */
static enum zd_status expect_end(
        yaml_parser_t *parser, const char *name, json_t **out)
{
    yaml_document_t next;
    const char *what = parser->problem ? parser->problem : "it cannot be read";
    if (yaml_parser_load(parser, &next)) {
        bool is_end = !yaml_document_get_root_node(&next);
        yaml_document_delete(&next);
        if (is_end)
            return ZD_OK;
        what = "a second document";
    }
    json_decref(*out);
    *out = NULL;
    return fail(name, &parser->mark, what);
}

static void begin(yaml_parser_t *parser, const char *text, size_t bytes)
{
    if (!yaml_parser_initialize(parser))
        zd_out_of_memory();
    yaml_parser_set_input_string(parser, (const unsigned char *)text, bytes);
}

/* libyaml's tree takes time by the square of levels and of anchors, and memory
 * for all values, so they are counted before. What is no YAML passes. */
static enum zd_status check_bounds(
        const char *text, size_t bytes, const char *name)
{
    yaml_parser_t parser;
    yaml_event_t event;
    int depth = 0, nodes = 0, anchors = 0;
    enum zd_status status = ZD_OK;
    begin(&parser, text, bytes);
    for (bool more = true; more && status == ZD_OK;) {
        more = yaml_parser_parse(&parser, &event) &&
               event.type != YAML_STREAM_END_EVENT;
        switch (event.type) {
        case YAML_SEQUENCE_START_EVENT:
            depth++, nodes++, anchors += !!event.data.sequence_start.anchor;
            break;
        case YAML_MAPPING_START_EVENT:
            depth++, nodes++, anchors += !!event.data.mapping_start.anchor;
            break;
        case YAML_SCALAR_EVENT:
            nodes++, anchors += !!event.data.scalar.anchor;
            break;
        case YAML_SEQUENCE_END_EVENT:
        case YAML_MAPPING_END_EVENT:
            depth--;
            break;
        default:
            break;
        }
        if (depth > DEPTH_MAX || nodes > NODES_MAX || anchors > ANCHORS_MAX)
            status = fail(name, &event.start_mark, too_much);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return status;
}

enum zd_status yaml_parse(
        const char *text, size_t bytes, const char *name, json_t **out)
{
    struct reader reader = {.name = name};
    yaml_parser_t parser;
    enum zd_status status;
    ZD_TRY(check_bounds(text, bytes, name));
    begin(&parser, text, bytes);
    if (!yaml_parser_load(&parser, &reader.document)) {
        status =
                fail(name, &parser.problem_mark,
                     parser.problem ? parser.problem : "it cannot be read");
    } else {
        const yaml_node_t *root = yaml_document_get_root_node(&reader.document);
        const yaml_mark_t mark = {0};
        status = root ? read_node(&reader, 1, 0, out)
                      : fail(name, &mark, "the file is empty");
        yaml_document_delete(&reader.document);
        ZD_THEN(status, expect_end(&parser, name, out));
    }
    yaml_parser_delete(&parser);
    return status;
}
