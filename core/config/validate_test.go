package config

import (
	"strings"
	"testing"
)

// pullRecordsOff is a configuration without KEP-2535, whose settings it cannot have.
const pullRecordsOff = "featureGates: {KubeletEnsureSecretPulledImages: false}\n"

// invalidConfigs holds invalid configurations and, for each, the path of its only invalid field.
var invalidConfigs = map[string]string{
	"maxPods: -1":                                        "maxPods",
	"podsPerCore: -1":                                    "podsPerCore",
	"port: 70000":                                        "port",
	"readOnlyPort: -1":                                   "readOnlyPort",
	"healthzPort: 65536":                                 "healthzPort",
	"healthzBindAddress: localhost":                      "healthzBindAddress",
	"address: 1.2.3":                                     "address",
	"fileCheckFrequency: -1s":                            "fileCheckFrequency",
	"runtimeRequestTimeout: -2m":                         "runtimeRequestTimeout",
	"syncFrequency: -1s":                                 "syncFrequency",
	"podLogsDir: logs":                                   "podLogsDir",
	"podLogsDir: /a/../b":                                "podLogsDir",
	"podLogsDir: /ä":                                     "podLogsDir",
	"containerRuntimeEndpoint: tcp://x":                  "containerRuntimeEndpoint",
	"containerRuntimeEndpoint: run.sock":                 "containerRuntimeEndpoint",
	"imageServiceEndpoint: 'unix://a'":                   "imageServiceEndpoint",
	"containerLogMaxFiles: 1":                            "containerLogMaxFiles",
	"containerLogMaxSize: big":                           "containerLogMaxSize",
	"containerLogMaxWorkers: 0":                          "containerLogMaxWorkers",
	"containerLogMonitorInterval: 2s":                    "containerLogMonitorInterval",
	"allowedUnsafeSysctls: [net.*, vm.swappiness]":       "allowedUnsafeSysctls[1]",
	"allowedUnsafeSysctls: [net.*.all]":                  "allowedUnsafeSysctls[0]",
	"nodeLeaseDurationSeconds: -1":                       "nodeLeaseDurationSeconds",
	"nodeStatusMaxImages: -2":                            "nodeStatusMaxImages",
	"eventBurst: -1":                                     "eventBurst",
	"eventRecordQPS: -1":                                 "eventRecordQPS",
	"kubeAPIQPS: -1":                                     "kubeAPIQPS",
	"kubeAPIBurst: -1":                                   "kubeAPIBurst",
	"registryPullQPS: -1":                                "registryPullQPS",
	"registryBurst: -1":                                  "registryBurst",
	"maxParallelImagePulls: 0":                           "maxParallelImagePulls",
	"oomScoreAdj: 1001":                                  "oomScoreAdj",
	"iptablesDropBit: 32":                                "iptablesDropBit",
	"iptablesMasqueradeBit: -1":                          "iptablesMasqueradeBit",
	"maxOpenFiles: -1":                                   "maxOpenFiles",
	"imageGCHighThresholdPercent: 101":                   "imageGCHighThresholdPercent",
	"imageGCHighThresholdPercent: 80":                    "imageGCLowThresholdPercent",
	"imageMinimumGCAge: -1s":                             "imageMinimumGCAge",
	"imageMaximumGCAge: 1m":                              "imageMaximumGCAge",
	"hairpinMode: loop":                                  "hairpinMode",
	"cgroupDriver: cgroup":                               "cgroupDriver",
	"topologyManagerPolicy: best":                        "topologyManagerPolicy",
	"topologyManagerScope: node":                         "topologyManagerScope",
	"memoryManagerPolicy: static":                        "memoryManagerPolicy",
	"cpuManagerPolicy: dynamic":                          "cpuManagerPolicy",
	"memorySwap: {swapBehavior: Some}":                   "memorySwap.swapBehavior",
	"memoryThrottlingFactor: 1.5":                        "memoryThrottlingFactor",
	"memoryReservationPolicy: Some":                      "memoryReservationPolicy",
	"memoryReservationPolicy: TieredReservation":         "memoryReservationPolicy",
	"systemCgroups: /system":                             "cgroupRoot",
	"cpuCFSQuotaPeriod: 2s":                              "cpuCFSQuotaPeriod",
	"runOnce: true":                                      "runOnce",
	"tlsMinVersion: '1.2'":                               "tlsMinVersion",
	"enforceNodeAllocatable: [some]":                     "enforceNodeAllocatable[0]",
	"enforceNodeAllocatable: [none, pods]":               "enforceNodeAllocatable[0]",
	"enforceNodeAllocatable: [pods, pods]":               "enforceNodeAllocatable[1]",
	"enforceNodeAllocatable: [kube-reserved]":            "kubeReservedCgroup",
	"cgroupsPerQOS: false":                               "enforceNodeAllocatable[0]",
	"qosReserved: {cpu: 10%}":                            "qosReserved",
	"qosReserved: {memory: 101%}":                        "qosReserved[memory]",
	"qosReserved: {memory: \"50\"}":                      "qosReserved[memory]",
	"reservedSystemCPUs: a-b":                            "reservedSystemCPUs",
	"kubeReserved: {cpu: '1e-999999999'}":                "kubeReserved[cpu]",
	"kubeReserved: {cpu: lots}":                          "kubeReserved[cpu]",
	"systemReserved: {memory: -1Gi}":                     "systemReserved[memory]",
	"evictionHard: {memory: 1Gi}":                        "evictionHard[memory]",
	"evictionHard: {memory.available: 101%}":             "evictionHard[memory.available]",
	"evictionHard: {memory.available: \"0\"}":            "evictionHard[memory.available]",
	"evictionMinimumReclaim: {nodefs.available: 0%}":     "evictionMinimumReclaim[nodefs.available]",
	"evictionMinimumReclaim: {nodefs.available: \"-1\"}": "evictionMinimumReclaim[nodefs.available]",
	"evictionSoft: {memory.available: 1Gi}":              "evictionSoftGracePeriod[memory.available]",
	"evictionSoftGracePeriod: {memory: 1s}":              "evictionSoftGracePeriod[memory]",
	"shutdownGracePeriod: 10ms":                          "shutdownGracePeriod",
	"shutdownGracePeriodCriticalPods: 10s":               "shutdownGracePeriodCriticalPods",
	"logging: {format: xml}":                             "logging.format",
	"logging: {options: {json: {splitStream: true}}}":    "logging.options.json.splitStream",
	"tracing: {samplingRatePerMillion: -1}":              "tracing.samplingRatePerMillion",
	"tracing: {samplingRatePerMillion: 1000001}":         "tracing.samplingRatePerMillion",
	"tracing: {endpoint: ''}":                            "tracing.endpoint",
	"tracing: {endpoint: 'http://collector:4317'}":       "tracing.endpoint",
	"tracing: {endpoint: 'dns://'}":                      "tracing.endpoint",
	"tracing: {endpoint: 'collector :4317'}":             "tracing.endpoint",
	"userNamespaces: {idsPerPod: 1000}":                  "userNamespaces.idsPerPod",
	"crashLoopBackOff: {maxContainerRestartPeriod: 301s}": "crashLoopBackOff" +
		".maxContainerRestartPeriod",
	"registerWithTaints: [{key: a b, effect: NoSchedule}]": "registerWithTaints[0].key",
	"registerWithTaints: [{key: a, effect: Never}]":        "registerWithTaints[0].effect",
	"reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]":    "reservedMemory[0].limits[cpu]",
	"reservedMemory: [{numaNode: 0, limits: {}}]":          "reservedMemory[0].limits",
	"preloadedImagesVerificationAllowlist: [a]":            "preloadedImagesVerificationAllowlist",
	"imagePullCredentialsVerificationPolicy: Sometimes": "imagePullCredentials" +
		"VerificationPolicy",
	pullRecordsOff + "imagePullCredentialsVerificationPolicy: NeverVerify": "imagePullCredentials" +
		"VerificationPolicy",
	pullRecordsOff + "preloadedImagesVerificationAllowlist: [a]": "preloadedImages" +
		"VerificationAllowlist",
	"featureGates: {CustomCPUCFSQuotaPeriod: false}\ncpuCFSQuotaPeriod: 50ms": "cpuCFSQuotaPeriod",

	// A cgroup that is to be limited to what is reserved for it, which is nothing.
	"kubeReservedCgroup: /k\nenforceNodeAllocatable: [kube-reserved]": "kubeReserved",
	"systemReservedCgroup: /s\n" +
		"enforceNodeAllocatable: [system-reserved-compressible]": "systemReserved",
	"systemReservedCgroup: /s\nsystemReserved: {cpu: 1m}\n" +
		"enforceNodeAllocatable: [system-reserved, system-reserved-compressible]": "enforceNode" +
		"Allocatable[1]",
	"reservedSystemCPUs: '0'\nkubeReservedCgroup: /k": "reservedSystemCPUs",
}

func TestValidateRejects(t *testing.T) {
	for body, want := range invalidConfigs {
		checkInvalid(t, body, want)
	}
}

func checkInvalid(t *testing.T, body, want string) {
	t.Helper()
	base := configFile("/c", body+"\n")
	l, err := Load(&base, nil, nil)
	if err != nil {
		t.Errorf("%s: %v", body, err)
		return
	}
	SetDefaults(l.Config)
	errs := Validate(l.Config)
	if len(errs) != 1 || errs[0].Field != want {
		t.Errorf("%s: got %v, want one error of %s", body, errs.ToAggregate(), want)
	}
}

func TestValidateAccepts(t *testing.T) {
	for _, body := range []string{
		"podLogsDir: /var/log/pods/",
		"containerRuntimeEndpoint: /run/crio.sock",
		"address: '::'",
		"healthzPort: 0",
		"evictionSoft: {memory.available: 5%}\nevictionSoftGracePeriod: {memory.available: 30s}",
		"featureGates: {CustomCPUCFSQuotaPeriod: true}\ncpuCFSQuotaPeriod: 50ms",
		"cpuCFSQuotaPeriod: 50ms",
		"enforceNodeAllocatable: [pods, kube-reserved]\nkubeReservedCgroup: /kube\n" +
			"kubeReserved: {cpu: \"1\"}",
		"cgroupsPerQOS: false\nenforceNodeAllocatable: []",
		"cgroupsPerQOS: false\nenforceNodeAllocatable: [none]",
		"reservedSystemCPUs: 0-1,3\nsystemReserved: {memory: 1Gi}",
		"systemReservedCgroup: /s\nsystemReserved: {cpu: \"1\"}\nkubeReservedCgroup: /k\n" +
			"kubeReserved: {memory: 1Gi}\n" +
			"enforceNodeAllocatable: [pods, kube-reserved, system-reserved-compressible]",
		"shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s",
		"kubeReserved: {cpu: 100m, memory: 1Gi, ephemeral-storage: 1Gi, pid: '1000'}",
		"evictionHard: {imagefs.available: 0%, nodefs.available: 100%}",
		"evictionMinimumReclaim: {imagefs.available: \"0\", nodefs.available: 120%}",
		"serializeImagePulls: false\nmaxParallelImagePulls: 5",
		pullRecordsOff + "imagePullCredentialsVerificationPolicy: ''",
	} {
		base := configFile("/c", body+"\n")
		l, err := Load(&base, nil, nil)
		if err == nil {
			err = l.Finish()
		}
		if err != nil {
			t.Errorf("%s: %v", strings.ReplaceAll(body, "\n", "; "), err)
		}
	}
}
