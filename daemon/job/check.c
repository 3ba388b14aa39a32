/* check.c - what a table of contradictions cannot say: addresses, and whether
 * the model has what the job asks of it. */
#include "daemon/job/job_internal.h"

#include "base/file/fs.h"
#include "model/files/config.h"
#include "model/params.h"
#include "train/plan/plan.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define OUT_OF_RANGE "E0206"

/* --- [device], [control] --- */

static void check_gpus(struct job *job)
{
    const char *gpus = job->options.device.gpus;
    if (!device_gpus_are_valid(gpus))
        job_refuse(
                job, OUT_OF_RANGE, "device.gpus", "gpus = \"0,1\"",
                "gpus = \"%.80s\": must be \"auto\", or numbers with commas",
                gpus);
}

static void check_socket(struct job *job)
{
    const char *path = job->options.control.socket_path;
    size_t most = sizeof((struct sockaddr_un *)0)->sun_path - 1;
    if (path && strlen(path) > most)
        job_refuse(
                job, OUT_OF_RANGE, "control.socket",
                job_string(
                        job,
                        "a path relative to the folder the job is started in "
                        "may be shorter: socket = \"./%.40s.sock\"",
                        job->options.job.name),
                "the path of control.socket is %zu bytes long; a socket's may "
                "have %zu",
                strlen(path), most);
}

/* "127.0.0.1:9479", "node1:9479", "[::1]:9479" */
static bool is_address(const char *text)
{
    const char *colon = strrchr(text, ':');
    size_t host = colon ? (size_t)(colon - text) : 0;
    if (!host || strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return false;
    long port = strtol(colon + 1, NULL, 10);
    if (!colon[1] || strlen(colon + 1) > 5 || port < 1 || port > 65535)
        return false;
    if (text[0] == '[')
        return host > 2 && text[host - 1] == ']' &&
               strspn(text + 1, "0123456789abcdefABCDEF:.") == host - 2;
    return strcspn(text, " :/[]") == host;
}

static void check_listen(struct job *job)
{
    const char *address = job->options.control.metrics_listen;
    if (address && !is_address(address))
        job_refuse(
                job, OUT_OF_RANGE, "control.metrics_listen",
                "metrics_listen = \"127.0.0.1:9479\"",
                "\"%.80s\" is not an address: HOST:PORT, port 1 to 65535",
                address);
}

/* --- the model --- */

static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at++) {
        char before = at == text ? ' ' : at[-1], after = at[length];
        if (!isalnum((unsigned char)before) && before != '_' &&
            !isalnum((unsigned char)after) && after != '_')
            return true;
    }
    return false;
}

/* The key of [model.config] that the error speaks of, or the table. */
static struct toml_place config_place(const struct job *job, const char *what)
{
    const struct toml_node *model = toml_find(job->root, "model");
    const struct toml_node *table = model ? toml_find(model, "config") : NULL;
    struct toml_place place = job_place(job, "model.config");
    size_t longest = 0;
    for (int i = 0; table && i < table->count; i++) {
        const struct toml_node *item = table->items[i];
        if (strlen(item->key) > longest && has_word(what, item->key)) {
            longest = strlen(item->key);
            place = item->key_place;
        }
    }
    return place;
}

static void check_config(struct job *job, const struct model_config *config)
{
    const struct train_options *train = &job->options.train;
    int cutoff_len = job->options.data.cutoff_len;
    struct param_table table;
    if (!job_key(job, "data.cutoff_len")->refused &&
        cutoff_len > config->max_positions)
        job_refuse(
                job, "E0215", "data.cutoff_len", NULL,
                "data.cutoff_len = %d is beyond the model's %d positions",
                cutoff_len, config->max_positions);
    if (param_table_build(config, train->freeze, train->freeze_count, &table)) {
        job_take_record(job, "train.freeze");
        return;
    }
    job_check_adapters(job, config, &table);
    param_table_fini(&table);
}

static void check_model(struct job *job)
{
    const struct model_options *model = &job->options.model;
    struct model_config config;
    if (!!model->config == !!model->path ||
        (model->path && !fs_is_dir(model->path)))
        return;
    if (job_plan_config(&job->options, &config) == ZD_OK) {
        check_config(job, &config);
        model_config_fini(&config);
    } else if (model->config) {
        problem_take_record(
                &job->problems, config_place(job, zd_error_get()->what));
    } else {
        zd_error_clear(); /* told with the paths */
    }
}

void job_check(struct job *job)
{
    static const struct {
        const char *key;
        void (*check)(struct job *job);
    } checks[] = {
            {"device.gpus", check_gpus},
            {"control.socket", check_socket},
            {"control.metrics_listen", check_listen}};
    job_check_contradictions(job);
    job_check_optim(job);
    for (int i = 0; i < 3; i++)
        if (!job_key(job, checks[i].key)->refused)
            checks[i].check(job);
    check_model(job);
}
