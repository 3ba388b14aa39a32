/* yaml.h - the door to libyaml: text in, a jansson tree out, so that a
 * file in YAML is read like one in JSON.
 *
 * Plain words are what YAML 1.2's core schema says (null, true, 12, 1e-5),
 * and yes, no, on, off as YAML 1.1 has them. Anchors are followed, but the tree
 * is bounded; a document, and one alone. */
#pragma once

#include "base/file/json.h"

/* ZD_ERR_DATA with "where" = name:line:column. The caller owns *out. */
enum zd_status yaml_parse(
        const char *text, size_t bytes, const char *name, json_t **out);
