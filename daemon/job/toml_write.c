/* toml_write.c - values as a job file has them. */
#include "daemon/job/toml_write.h"

#include "base/units.h"

#include <stdbool.h>
#include <string.h>

/* The fewest digits that come back exactly, marked as a number with a fraction.
 */
static void put_real(FILE *stream, double value)
{
    char text[UNITS_TEXT];
    units_exact(value, text);
    fputs(text, stream);
    if (!strpbrk(text, ".en"))
        fputs(".0", stream);
}

void toml_write_key(FILE *stream, const char *key)
{
    static const char bare[] = "abcdefghijklmnopqrstuvwxyz"
                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    if (key[0] && strspn(key, bare) == strlen(key)) {
        fputs(key, stream);
        return;
    }
    json_t *string = json_string(key);
    json_dumpf(string, stream, JSON_ENCODE_ANY);
    json_decref(string);
}

/* JSON as a TOML value: strings are written alike. */
void toml_write(FILE *stream, const json_t *value)
{
    const char *key;
    json_t *item;
    size_t i;
    bool is_first = true;
    switch (json_typeof(value)) {
    case JSON_REAL:
        put_real(stream, json_real_value(value));
        break;
    case JSON_ARRAY:
        fputc('[', stream);
        json_array_foreach((json_t *)value, i, item)
        {
            fputs(i ? ", " : "", stream);
            toml_write(stream, item);
        }
        fputc(']', stream);
        break;
    case JSON_OBJECT:
        fputc('{', stream);
        json_object_foreach((json_t *)value, key, item)
        {
            fputs(is_first ? " " : ", ", stream);
            is_first = false;
            toml_write_key(stream, key);
            fputs(" = ", stream);
            toml_write(stream, item);
        }
        fputs(is_first ? "}" : " }", stream);
        break;
    default:
        json_dumpf(value, stream, JSON_ENCODE_ANY);
        break;
    }
}
