#include "nvml/pci.h"
#include <stdio.h>

void pci_text(const struct sim_gpu *gpu, char *text)
{
    snprintf(text, PCI_TEXT_SIZE, "%08X:%02X:%02X.0", gpu->pci_domain, gpu->pci_bus & 0xff,
             gpu->pci_device & 0xff);
}

void pci_describe(const struct sim_gpu *gpu, nvmlPciInfo_t *out)
{
    *out = (nvmlPciInfo_t){
        .domain = gpu->pci_domain,
        .bus = gpu->pci_bus,
        .device = gpu->pci_device,
    };
    pci_text(gpu, out->busId);
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04X:%02X:%02X.0",
             gpu->pci_domain & 0xffff, gpu->pci_bus & 0xff, gpu->pci_device & 0xff);
}
