/* yaml.h - the door to libyaml: text in, a jansson tree out, so that a
 * file in YAML is read like one in JSON.
 *
 * Plain scalars follow YAML 1.2's core schema (null, true, 12, 1e-5), plus yes,
 * no, on and off of YAML 1.1. Anchors are followed, but the tree is bounded.
 * The text must be exactly one document. */
#pragma once

#include "base/file/json.h"

/* ZD_ERR_DATA with "where" = name:line:column. The caller owns *out. */
enum zd_status yaml_parse(
        const char *text, size_t bytes, const char *name, json_t **out);
