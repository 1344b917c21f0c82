/* Are the GPUs of this process's container granted whole? Asked before it is attached, too. */
#include "runtime/session.h"

#include <unistd.h>

static bool whole(const struct vcuda_config *config)
{
    for (uint32_t device = 0; device < config->device_count; device++)
        if (atomic_load_explicit(&config->limits[device].core_percent, memory_order_relaxed) < 100)
            return false;
    return config->device_count > 0;
}

/* The page as it is in its file now. False if it cannot be had. */
static bool read_config(struct vcuda_config *config)
{
    int file = session_config_open();
    if (file < 0)
        return false;
    ssize_t size = pread(file, config, sizeof *config, 0);
    close(file);
    return size == (ssize_t)sizeof *config && session_config_usable(config);
}

bool session_whole(const struct session *session)
{
    struct vcuda_config config;
    if (session_phase(session) == SESSION_ATTACHED)
        return whole(session->config);
    return read_config(&config) && whole(&config);
}
