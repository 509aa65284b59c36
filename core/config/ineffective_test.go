package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// allFields returns the paths of all fields, in the form of setFields.
func allFields(t reflect.Type, prefix string) []string {
	var all []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		typ := t.Field(i).Type
		switch {
		case name == "-":
		case name == "":
			all = append(all, allFields(typ, prefix)...)
		case typ.Kind() == reflect.Pointer && isGroup(typ.Elem()):
			all = append(all, allFields(typ.Elem(), prefix+name+".")...)
		case isGroup(typ):
			all = append(all, allFields(typ, prefix+name+".")...)
		default:
			all = append(all, prefix+name)
		}
	}
	return all
}

func TestFieldsInEffectExist(t *testing.T) {
	all := allFields(reflect.TypeFor[configuration](), "")
	for _, path := range fieldsInEffect {
		if !slices.Contains(all, path) {
			t.Errorf("there is no field %s", path)
		}
	}
	if !slices.IsSorted(fieldsInEffect) {
		t.Error("the fields in effect are not sorted")
	}
}

func TestFieldsInEffectAreNotReported(t *testing.T) {
	base := configFile("/c", `
staticPodPath: /a
fileCheckFrequency: 5s
staticPodURL: https://manifests.example/node
staticPodURLHeader: {X-Token: [a, b]}
httpCheckFrequency: 5s
readOnlyPort: 10255
address: 127.0.0.1
healthzPort: 0
healthzBindAddress: 127.0.0.1
containerRuntimeEndpoint: unix:///a
imageServiceEndpoint: unix:///b
runtimeRequestTimeout: 1m
maxPods: 3
podLogsDir: /logs
logging: {format: json, verbosity: 4}
crashLoopBackOff: {maxContainerRestartPeriod: 10s}
cpuCFSQuota: true
cpuCFSQuotaPeriod: 50ms
memorySwap: {swapBehavior: LimitedSwap}
singleProcessOOMKill: true
memoryThrottlingFactor: 0.8
memoryReservationPolicy: TieredReservation
enforceNodeAllocatable: [pods, kube-reserved]
kubeReservedCgroup: /kube
kubeReserved: {memory: 1Gi}
systemReservedCgroup: /system
failSwapOn: false
maxOpenFiles: 5
oomScoreAdj: 5
qosReserved: {memory: 50%}
featureGates: {MemoryQoS: true, CustomCPUCFSQuotaPeriod: true, QOSReserved: true}
`)
	if l := loadAndFinish(t, &base); len(l.Warnings) != 0 {
		t.Errorf("warnings %q", l.Warnings)
	}
}

// The gate is on unless it is set to false, and setting it gives no warning.
func TestRestartAllContainersEnabled(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "RestartAllContainersOnContainerExits: true": true,
		"RestartAllContainersOnContainerExits: false": false,
	} {
		base := configFile("/c", "staticPodPath: /a\nfeatureGates: {"+text+"}\n")
		l := loadAndFinish(t, &base)
		if RestartAllContainersEnabled(l.Config) != want || len(l.Warnings) > 0 {
			t.Errorf("%q: %v, warnings %q", text, RestartAllContainersEnabled(l.Config), l.Warnings)
		}
	}
}

// A threshold for the file system of the writable layers is valid, and has no effect.
func TestContainerfsThresholdsWarn(t *testing.T) {
	base := configFile("/c", `
evictionHard: {memory.available: 100Mi, containerfs.available: 5%}
evictionSoft: {containerfs.inodesFree: 5%}
evictionSoftGracePeriod: {containerfs.inodesFree: 1m}
`)
	const want = "thresholds that are set but have no effect: evictionHard[containerfs.available], " +
		"evictionSoft[containerfs.inodesFree]: "
	l := loadAndFinish(t, &base)
	if len(l.Warnings) != 1 || !strings.HasPrefix(l.Warnings[0], want) {
		t.Errorf("warnings %q", l.Warnings)
	}
}
