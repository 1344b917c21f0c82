// Command methods calls every method of an NVML device that takes no argument and only asks, and
// writes a row for each, as each_end.py does: its name, whether it succeeded, and what it answered.
// A function that the driver's library lacks ends the process; it goes on behind it when run again.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"reflect"
	"regexp"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// moving answers are others whenever one asks.
var moving = map[string]bool{"GetTotalEnergyConsumption": true}

// address is where a handle points, which differs from run to run.
var address = regexp.MustCompile("0x[0-9a-f]+")

func main() {
	if ret := nvml.Init(); ret != nvml.SUCCESS {
		log.Fatal(nvml.ErrorString(ret))
	}
	device, ret := nvml.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		log.Fatal(nvml.ErrorString(ret))
	}
	begun, err := os.ReadFile(os.Getenv("CLIENT_ENDS"))
	if err != nil {
		log.Fatal(err)
	}
	ends, err := os.OpenFile(os.Getenv("CLIENT_ENDS"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		log.Fatal(err)
	}
	rows := json.NewEncoder(ends)
	value := reflect.ValueOf(device)
	for i := 0; i < value.NumMethod(); i++ {
		name := value.Type().Method(i).Name
		asks := strings.HasPrefix(name, "Get") || strings.HasPrefix(name, "Is")
		done := strings.Contains(string(begun), `["`+name+`"`)
		if value.Method(i).Type().NumIn() > 0 || !asks || done {
			continue
		}
		if err := rows.Encode([]string{name}); err != nil {
			log.Fatal(err)
		}
		outcome, answer := call(value.Method(i))
		if moving[name] && outcome == "passed" {
			answer = ""
		}
		if err := rows.Encode([]string{name, outcome, answer}); err != nil {
			log.Fatal(err)
		}
	}
}

// call gives the outcome, and the answer, or where there is none the error.
func call(method reflect.Value) (outcome string, answer string) {
	results := method.Call(nil)
	last := results[len(results)-1].Interface()
	if ret, is := last.(nvml.Return); is {
		if ret != nvml.SUCCESS {
			return "failed", nvml.ErrorString(ret)
		}
		results = results[:len(results)-1]
	}
	for _, result := range results {
		if result.Kind() != reflect.Interface && result.Kind() != reflect.Pointer {
			answer += fmt.Sprintf("%+v", result.Interface())
		}
	}
	return "passed", address.ReplaceAllString(answer, "0x")
}
