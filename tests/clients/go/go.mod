module clients

go 1.21

require (
	github.com/NVIDIA/go-nvml v0.13.4-1
	gorgonia.org/cu v0.9.6
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/pkg/errors v0.9.1 // indirect
)
