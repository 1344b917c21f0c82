// What kube-scheduler answers: its allocator and its CEL environment, one question per line of JSON.
//
//	{"node": Node, "claims": [ResourceClaim], "classes": [DeviceClass], "slices": [ResourceSlice],
//	 "allocated": [AllocationResult]}              -> {"allocations": [AllocationResult] or null}
//	{"expression": "...", "driver": "...", "device": Device}                  -> {"matches": true}
//
// Both may be answered by {"error": "..."}. The features are those that are on by default in 1.37.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

type question struct {
	Node      v1.Node                        `json:"node"`
	Claims    []*resourceapi.ResourceClaim   `json:"claims"`
	Classes   []*resourceapi.DeviceClass     `json:"classes"`
	Slices    []*resourceapi.ResourceSlice   `json:"slices"`
	Allocated []resourceapi.AllocationResult `json:"allocated"`

	Expression string             `json:"expression"`
	Driver     string             `json:"driver"`
	Device     resourceapi.Device `json:"device"`
}

type answer struct {
	Allocations []resourceapi.AllocationResult `json:"allocations"`
	Matches     bool                           `json:"matches"`
	Error       string                         `json:"error,omitempty"`
}

type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("deviceclass %q not found", name)
}

var features = structured.Features{
	AdminAccess:             true,
	ConsumableCapacity:      true,
	DeviceBindingAndStatus:  true,
	DeviceTaints:            true,
	FractionalCapacityRange: true,
	PartitionableDevices:    true,
	PrioritizedList:         true,
}

var celFeatures = cel.Features{EnableConsumableCapacity: true}

// As the plugin reads it from the claims of the cluster.
func state(allocated []resourceapi.AllocationResult) structured.AllocatedState {
	found := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, allocation := range allocated {
		for _, r := range allocation.Devices.Results {
			id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
			switch {
			case r.AdminAccess != nil && *r.AdminAccess:
			case r.ShareID == nil:
				found.AllocatedDevices.Insert(id)
			default:
				found.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
				if r.ConsumedCapacity != nil {
					found.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
				}
			}
		}
	}
	return found
}

func allocate(q *question, cache *cel.Cache) (answer, error) {
	ctx := context.Background()
	allocator, err := structured.NewAllocator(ctx, features, state(q.Allocated), classes(q.Classes), q.Slices, cache)
	if err != nil {
		return answer{}, err
	}
	found, err := allocator.Allocate(ctx, &q.Node, q.Claims)
	return answer{Allocations: found}, err
}

func match(q *question, cache *cel.Cache) (answer, error) {
	compiled := cache.GetOrCompile(q.Expression)
	if compiled.Error != nil {
		return answer{}, compiled.Error
	}
	device := cel.Device{Driver: q.Driver, AllowMultipleAllocations: q.Device.AllowMultipleAllocations,
		Attributes: q.Device.Attributes, Capacity: q.Device.Capacity}
	matches, _, err := compiled.DeviceMatches(context.Background(), device)
	return answer{Matches: matches}, err
}

func main() {
	cache := cel.NewCache(100, celFeatures)
	lines := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var q question
		var a answer
		if err = json.Unmarshal(line, &q); err == nil {
			if q.Expression != "" {
				a, err = match(&q, cache)
			} else {
				a, err = allocate(&q, cache)
			}
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err = answers.Encode(a); err != nil {
			os.Exit(1)
		}
	}
}
