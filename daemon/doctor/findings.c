/* findings.c - what is put into the report. */
#include "daemon/doctor/doctor.h"

#include <stdarg.h>

void doctor_put(struct doctor *doctor, const char *name, json_t *value)
{
    json_object_set_new(doctor->report, name, value);
}

static void add_finding(struct doctor *doctor, json_t *finding)
{
    json_array_append_new(json_object_get(doctor->report, "findings"), finding);
}

void doctor_warn(
        struct doctor *doctor, const char *cost, const char *fix,
        const char *format, ...)
{
    char what[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(what, sizeof what, format, values);
    va_end(values);
    add_finding(
            doctor, json_pack(
                            "{s:s, s:s, s:s, s:s}", "level", "warning", "what",
                            what, "cost", cost, "fix", fix));
}

void doctor_stop(struct doctor *doctor)
{
    const struct zd_error *error = zd_error_get();
    add_finding(
            doctor,
            json_pack(
                    "{s:s, s:s, s:s, s:s, s:s}", "level", "stop", "code",
                    error->code, "what", error->what, "cost",
                    "the job ends before its first step", "fix", error->help));
    zd_error_clear();
}
