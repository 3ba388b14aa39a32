/* test_job.c - values: how they may be written, and what follows from what. */
#include "tests/daemon/job/job_case.h"

#include <criterion/criterion.h>
#include <math.h>
#include <unistd.h>

Test(job, values_are_read_in_every_way_they_may_be_written)
{
    struct job_case c;
    job_case_init(
            &c,
            "\xef\xbb\xbf[job]\nseed = 7\n"
            "[device]\nmemory_limit = \"1.5GiB\"\nhost_memory_limit = \"90%\"\n"
            "cpu_threads = \"AUTO\"\n"
            "[train]\nmax_steps = 1e3\ndtype = \"FP32\"\n"
            "gradient_checkpointing = \"Every:3\"\nfreeze = [\"*embed*\", "
            "\"layers.0\"]\n"
            "[optim]\nname = \"AdamW_torch\"\nbetas = [0.5, 0.75]\n"
            "warmup_ratio = 0.25\nlr_scheduler_type = "
            "\"constant_with_warmup\"\n"
            "learning_rate = 1\n"
            "[zero]\nreduce_bucket_size = 5e8\nprefetch_bucket_size = "
            "\"auto\"\n"
            "[checkpoint]\nsave_every = \"1h30m\"\nmax_shard_size = \"5GB\"\n"
            "save_steps = 0.1\n[run]\nresume = \"some/where\"\n"
            "[log]\nformat = \"json\"\n[model]\ndtype = \"fp16\"\n");
    const struct train_job *job = job_options(c.job);
    cr_expect_eq(c.status, ZD_ERR_NO_INPUT); /* some/where */
    cr_expect_eq(c.problems->count, 1);
    cr_expect_eq(job->job.data_seed, 7);
    cr_expect_eq(job->device.memory_limit, 1610612736u);
    cr_expect_eq(job->device.memory_limit_fraction, 0);
    cr_expect_eq(job->device.host_memory_limit_fraction, 0.9);
    cr_expect_eq(job->device.cpu_threads, 0);
    cr_expect_eq(job->train.max_steps, 1000);
    cr_expect_eq(job->train.dtype, DTYPE_FP32);
    cr_expect_eq(job->train.gradient_checkpointing.every, 3);
    cr_assert_eq(job->train.freeze_count, 2);
    cr_expect_str_eq(job->train.freeze[0], "*embed*");
    cr_expect_eq(job->optim.adam_beta1, 0.5);
    cr_expect_eq(job->optim.adam_beta2, 0.75);
    cr_expect_eq(job->optim.warmup_steps, 0.25);
    cr_expect_eq(job->optim.lr_scheduler_type, LR_CONSTANT);
    cr_expect_eq(job->optim.learning_rate, 1);
    cr_expect_eq(job->zero.reduce_bucket_size, 500000000);
    cr_expect_eq(job->zero.prefetch_bucket_size, 0);
    cr_expect_eq(job->checkpoint.save_every_seconds, 5400);
    cr_expect_eq(job->checkpoint.max_shard_bytes, 5000000000u);
    cr_expect_eq(job->checkpoint.save_steps, 0.1);
    cr_expect_eq(job->run.resume, RESUME_PATH);
    cr_expect_str_eq(job->run.resume_path, "some/where");
    cr_expect(job->log.json);
    cr_expect(!job->model.dtype_auto && job->model.dtype == DTYPE_FP16);
    job_case_fini(&c);
}

Test(job, no_multiprocessors_is_another_wish_than_auto)
{
    static const struct {
        const char *text;
        int want;
    } cases[] = {
            {"", COMM_CTAS_AUTO},
            {"[comm]\nmax_ctas = \"auto\"\n", COMM_CTAS_AUTO},
            {"[comm]\nmax_ctas = 0\n", 0},
            {"[comm]\nmax_ctas = 12\n", 12},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct job_case c;
        job_case_init(&c, cases[i].text);
        cr_expect_eq(c.status, ZD_OK);
        cr_expect_eq(job_options(c.job)->comm.max_ctas, cases[i].want);
        job_case_fini(&c);
    }
}

Test(job, a_deadline_is_a_moment_or_a_time_from_the_start)
{
    static const struct {
        const char *text;
        double at, after, margin;
    } cases[] = {
            {"", 0, 0, 0},
            {"[run]\ndeadline = \"\"\ndeadline_margin = \"auto\"\n", 0, 0, 0},
            {"[run]\ndeadline = \"23h50m\"\n", 0, 85800, 0},
            {"[run]\ndeadline = \"2026-11-22T09:00:00+01:00\"\n", 1795334400, 0,
             0},
            {"[run]\ndeadline = 2026-11-22T08:00:00Z\n", 1795334400, 0, 0},
            {"[run]\ndeadline = 2026-11-22 03:30:00-04:30\n", 1795334400, 0, 0},
            {"[run]\ndeadline_margin = \"5m\"\n", 0, 0, 300},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct job_case c;
        job_case_init(&c, cases[i].text);
        const struct run_options *run = &job_options(c.job)->run;
        cr_expect_eq(c.status, ZD_OK, "%s", cases[i].text);
        cr_expect_eq(run->deadline, cases[i].at, "%s", cases[i].text);
        cr_expect_eq(run->deadline_after, cases[i].after, "%s", cases[i].text);
        cr_expect_eq(run->deadline_margin, cases[i].margin);
        job_case_fini(&c);
    }
}

Test(job, what_is_not_given_follows_from_the_rest)
{
    struct job_case c;
    job_case_init(&c, "");
    const struct train_job *job = job_options(c.job);
    cr_assert_eq(c.status, ZD_OK);
    cr_expect_str_eq(job->job.name, "job");
    cr_expect_str_eq(job->job.output_dir, "out/job");
    cr_expect_str_eq(job->job.run_name, "");
    cr_expect_eq(job->job.data_seed, job->job.seed);
    cr_expect_eq(job->model.init, MODEL_RANDOM);
    cr_expect_eq(job->train.per_device_train_batch_size, 0);
    cr_expect_eq(job->zero.reduce_bucket_size, 0);
    cr_assert_eq(job->data.train_count, 1);
    cr_expect_str_eq(job->data.train[0].field, "text");
    cr_expect_eq(
            json_integer_value(
                    json_object_get(job->model.config, "hidden_size")),
            64);
    cr_expect_eq(strlen(job->digest), 32);
    job_case_fini(&c);
}

Test(job, a_word_that_is_a_boolean_may_be_written_as_one)
{
    static const struct {
        const char *text;
        enum offload_pin pin;
    } cases[] = {
            {"[offload]\noptimizer = \"cpu\"\npin_memory = true\n",
             OFFLOAD_PIN_YES},
            {"[offload]\noptimizer = \"cpu\"\npin_memory = \"false\"\n",
             OFFLOAD_PIN_NO},
            {"[offload]\noptimizer = \"cpu\"\npin_memory = \"auto\"\n",
             OFFLOAD_PIN_AUTO},
    };
    for (int i = 0; i < 3; i++) {
        struct job_case c;
        job_case_init(&c, cases[i].text);
        cr_assert_eq(c.status, ZD_OK);
        cr_expect_eq(job_options(c.job)->offload.pin_memory, cases[i].pin);
        job_case_fini(&c);
    }
    struct job_case c;
    job_case_init(&c, "[aio]\nbackend = true\n");
    cr_expect_eq(c.status, ZD_ERR_CONFIG);
    cr_expect_str_eq(c.problems->items[0].code, "E0205");
    job_case_fini(&c);
}

Test(job, off_values_of_unavailable_keys_are_accepted)
{
    struct job_case c;
    job_case_init(
            &c,
            "[train]\ndeterministic = false\nneftune_noise_alpha = 0.0\n"
            "[lora]\nenabled = false\n[offload]\noptimizer = \"none\"\n"
            "nvme_path = \"\"\n[checkpoint]\nasync_save = false\n"
            "[control]\nsocket = \"none\"\nstatus_gid = -1\n[model]\nattn = "
            "\"auto\"\n");
    cr_expect_eq(c.status, ZD_OK);
    cr_expect_eq(c.problems->count, 0);
    job_case_fini(&c);
}

Test(job, tf32_is_off_until_it_is_asked_for)
{
    struct job_case c;
    job_case_init(&c, "[train]\ntf32 = true\n");
    cr_expect_eq(c.status, ZD_OK);
    cr_expect(job_options(c.job)->train.tf32);
    job_case_fini(&c);
    job_case_init(&c, "");
    cr_expect_eq(c.status, ZD_OK);
    cr_expect_not(job_options(c.job)->train.tf32);
    job_case_fini(&c);
}

Test(job, sockets_addresses_and_groups_are_taken)
{
    char *text = NULL;
    struct job_case c;
    job_case_init(&c, "[control]\nreadonly = true\n");
    const struct control_options *control = &job_options(c.job)->control;
    cr_expect_eq(control->socket, CONTROL_AUTO);
    cr_expect_null(control->socket_path);
    cr_expect_null(control->metrics_listen);
    cr_expect_eq(control->status_gid, -1);
    cr_expect(control->readonly);
    cr_expect(job_options(c.job)->report.tensorboard);
    job_case_fini(&c);
    cr_assert_gt(
            asprintf(
                    &text,
                    "[control]\nsocket = \"/" SIXTEEN SIXTEEN SIXTEEN SIXTEEN
                            SIXTEEN SIXTEEN "1234567890\"\nstatus_gid = %d\n"
                    "metrics_listen = \"[::1]:9479\"\n"
                    "[report]\nhtml = false\nprometheus_textfile = \"p\"\n",
                    (int)getegid()),
            0);
    job_case_init(&c, text);
    control = &job_options(c.job)->control;
    cr_expect_eq(c.status, ZD_OK);
    cr_expect_eq(control->socket, CONTROL_PATH);
    cr_expect_eq(strlen(control->socket_path), 107);
    cr_expect_eq(control->status_gid, (int)getegid());
    cr_expect_not(job_options(c.job)->report.html);
    job_case_fini(&c);
    free(text);
}

Test(job, gpus_are_numbers)
{
    const char *good[] = {"auto", "0", "2,0"}, *bad[] = {"", "all", "0 1"};
    struct job_case c;
    char text[64];
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "[device]\ngpus = \"%s\"\n", good[i]);
        job_case_init(&c, text);
        cr_assert_eq(c.status, ZD_OK);
        cr_expect_str_eq(job_options(c.job)->device.gpus, good[i]);
        job_case_fini(&c);
        snprintf(text, sizeof text, "[device]\ngpus = \"%s\"\n", bad[i]);
        job_case_init(&c, text);
        cr_expect_eq(c.status, ZD_ERR_CONFIG);
        cr_expect_str_eq(c.problems->items[0].code, "E0206");
        job_case_fini(&c);
    }
}
