/* PCI addresses as NVML writes them. */
#ifndef SIM_NVML_PCI_H
#define SIM_NVML_PCI_H

#include "core/machine.h"
#include "nvml/api.h"

enum { PCI_TEXT_SIZE = 32 };

/* `00000000:07:00.0` */
void pci_text(const struct sim_gpu *gpu, char *text);
void pci_describe(const struct sim_gpu *gpu, nvmlPciInfo_t *out);

#endif
