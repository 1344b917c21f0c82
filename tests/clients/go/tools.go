// Package clients names what `make test-clients` builds the tests of.
package clients

import (
	_ "github.com/NVIDIA/go-nvml/pkg/nvml"
	_ "gorgonia.org/cu"
)
