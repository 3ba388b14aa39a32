/* fill.h - text from an object's members: the rows and columns of every command
 * are templates.
 *
 *   "{eval_loss|n}[ best {best_eval_loss|n}]"
 *
 *   {PATH|KIND}   a member ("gpu.held"), or the sum of several ("a+b"); "-"
 *                 where it is missing, null or an empty text
 *   [ .. ]        left out where one of its members is missing
 *
 * KIND   n  number           2.3101      c  count        491.5k
 *        b  bytes            3.2 GiB     z  likewise, 0 as "-"
 *        d  duration         2m05s       w  whole number 120
 *        +  whole number, missing where it is 0
 *        >  likewise, missing unless above 1
 *        <  nothing; missing unless above 1
 *        2  two decimals     0.31        f  rate         210 GFLOP/s
 *        %  hundred times it 31.2
 *        m  bytes in MiB     12.500
 *        t  time of day      20:33:53    a  time since   2m05s
 *        s  text, or a list with commas  j  JSON
 *        p  "s" unless it is 1           P  "es" unless it is 1
 *        ?  nothing; missing unless true .  nothing; missing unless a number
 *        !  nothing; missing unless the member is missing or false */
#pragma once

#include "base/file/json.h"
#include "daemon/cli/look.h"

/* malloc'd, safe to print. */
char *fill(const struct look *look, const json_t *object, const char *template);
void fill_print(
        const struct look *look, const json_t *object, const char *template);
/* A member by its path; NaN where it is missing, and no number. */
double fill_number(const json_t *object, const char *path);
