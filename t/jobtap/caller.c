/* For t/bench/jobtap: calls the handlers of a topic many times with flux_jobtap_call, and says how long that took.
 * job-manager.caller.run {id, topic, count} -> {seconds}.  It also has the handlers that Python ones are compared with.
 */
#include <errno.h>
#include <time.h>
#include <flux/core.h>
#include <flux/jobtap.h>
#include <jansson.h>

static double now (void)
{
    struct timespec ts;
    clock_gettime (CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + ts.tv_nsec * 1e-9;
}

static void run (flux_t *h, flux_msg_handler_t *mh, const flux_msg_t *msg, void *arg)
{
    flux_plugin_t *p = arg;
    flux_plugin_arg_t *args;
    json_int_t id;
    const char *topic;
    int count;
    double start;

    if (flux_request_unpack (msg, NULL, "{s:I s:s s:i}", "id", &id, "topic", &topic, "count", &count) < 0)
        goto error;
    start = now ();
    for (int i = 0; i < count; i++) {
        if (!(args = flux_jobtap_job_lookup (p, id)) || flux_jobtap_call (p, id, topic, args) < 0)
            goto error;
        flux_plugin_arg_destroy (args);
    }
    flux_respond_pack (h, msg, "{s:f}", "seconds", now () - start);
    return;
error:
    flux_respond_error (h, msg, errno ? errno : EINVAL, NULL);
}

static int empty (flux_plugin_t *p, const char *topic, flux_plugin_arg_t *args, void *arg)
{
    return 0;
}

static int jobspec (flux_plugin_t *p, const char *topic, flux_plugin_arg_t *args, void *arg)
{
    double duration;
    return flux_plugin_arg_unpack (args, FLUX_PLUGIN_ARG_IN, "{s:{s:{s:{s:F}}}}", "jobspec", "attributes", "system",
                                   "duration", &duration);
}

int flux_plugin_init (flux_plugin_t *p)
{
    if (flux_plugin_set_name (p, "caller") < 0
        || flux_plugin_add_handler (p, "bench.c.empty", empty, NULL) < 0
        || flux_plugin_add_handler (p, "bench.c.jobspec", jobspec, NULL) < 0
        || flux_jobtap_service_register (p, "run", run, p) < 0)
        return -1;
    return 0;
}
