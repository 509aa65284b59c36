package config

import (
	"encoding/json"
	"reflect"
	"slices"
	"sort"
	"strings"
)

// fieldsInEffect are the fields that the agent acts on. All other fields are decoded and validated
// but have no effect. A field is added here with the change that implements it.
var fieldsInEffect = []string{
	"address",
	"allowedUnsafeSysctls",
	"authentication.anonymous.enabled",
	"authentication.webhook.cacheTTL",
	"authentication.webhook.enabled",
	"authentication.x509.clientCAFile",
	"authorization.mode",
	"authorization.webhook.cacheAuthorizedTTL",
	"authorization.webhook.cacheUnauthorizedTTL",
	"cgroupDriver",
	"cgroupRoot",
	"cgroupsPerQOS",
	"clusterDNS",
	"clusterDomain",
	"configMapAndSecretChangeDetectionStrategy",
	"containerLogMaxFiles",
	"containerLogMaxSize",
	"containerLogMaxWorkers",
	"containerLogMonitorInterval",
	"containerRuntimeEndpoint",
	"contentType",
	"cpuCFSQuota",
	"cpuCFSQuotaPeriod",
	"crashLoopBackOff.maxContainerRestartPeriod",
	"enableContentionProfiling",
	"enableControllerAttachDetach",
	"enableDebugFlagsHandler",
	"enableDebuggingHandlers",
	"enableProfilingHandler",
	"enableServer",
	"enableSystemLogHandler",
	"enableSystemLogQuery",
	"enforceNodeAllocatable",
	"eventBurst",
	"eventRecordQPS",
	"evictionHard",
	"evictionMaxPodGracePeriod",
	"evictionMinimumReclaim",
	"evictionPressureTransitionPeriod",
	"evictionSoft",
	"evictionSoftGracePeriod",
	"failCgroupV1",
	"failSwapOn",
	"fileCheckFrequency",
	"healthzBindAddress",
	"healthzPort",
	"httpCheckFrequency",
	"imageGCHighThresholdPercent",
	"imageGCLowThresholdPercent",
	"imageMaximumGCAge",
	"imageMinimumGCAge",
	"imageServiceEndpoint",
	"kernelMemcgNotification",
	"kubeAPIBurst",
	"kubeAPIQPS",
	"kubeReserved",
	"kubeReservedCgroup",
	"kubeletCgroups",
	"logging.format",
	"logging.verbosity",
	"makeIPTablesUtilChains",
	"maxOpenFiles",
	"maxParallelImagePulls",
	"maxPods",
	"memoryReservationPolicy",
	"memorySwap.swapBehavior",
	"memoryThrottlingFactor",
	"mergeDefaultEvictionSettings",
	"nodeLeaseDurationSeconds",
	"nodeStatusMaxImages",
	"nodeStatusReportFrequency",
	"nodeStatusUpdateFrequency",
	"oomScoreAdj",
	"podCIDR",
	"podLogsDir",
	"podPidsLimit",
	"podsPerCore",
	"port",
	"protectKernelDefaults",
	"providerID",
	"qosReserved",
	"readOnlyPort",
	"registerNode",
	"registerWithTaints",
	"registryBurst",
	"registryPullQPS",
	"reservedSystemCPUs",
	"resolvConf",
	"rotateCertificates",
	"runtimeRequestTimeout",
	"seccompDefault",
	"serializeImagePulls",
	"serverTLSBootstrap",
	"shutdownGracePeriod",
	"shutdownGracePeriodByPodPriority",
	"shutdownGracePeriodCriticalPods",
	"singleProcessOOMKill",
	"staticPodPath",
	"staticPodURL",
	"staticPodURLHeader",
	"streamingConnectionIdleTimeout",
	"syncFrequency",
	"systemCgroups",
	"systemReserved",
	"systemReservedCgroup",
	"tlsCertFile",
	"tlsCipherSuites",
	"tlsCurvePreferences",
	"tlsMinVersion",
	"tlsPrivateKeyFile",
	"tracing.endpoint",
	"tracing.samplingRatePerMillion",
	"userNamespaces.idsPerPod",
	"volumeStatsAggPeriod",
}

// gatesInEffect are the feature gates that the agent acts on.
var gatesInEffect = []string{"ComponentFlagz", "ComponentStatusz", "ContainerCheckpoint",
	"EventedPLEG", "PodLogsQuerySplitStreams", gateDeclaredFeatures, gateEnvFiles,
	gateExtendWebSockets, gateInitResize, gateMemoryQoS, gatePodLevelResize, gateQOSReserved,
	gateQuotaPeriod, gateRestartAllContainers, gateShutdown, gateShutdownByPriority}

// IneffectiveFields returns the paths of the fields that are set but have no effect yet, sorted.
// The configuration must not have its defaults yet.
func IneffectiveFields(c *configuration) []string {
	inEffect := map[string]bool{"apiVersion": true, "kind": true}
	for _, field := range fieldsInEffect {
		inEffect[field] = true
	}
	var fields []string
	for _, field := range setFields(reflect.ValueOf(c).Elem(), "") {
		if !inEffect[field] && field != "featureGates" {
			fields = append(fields, field)
		}
	}
	for gate := range c.FeatureGates { //ordered: sorted below
		if !slices.Contains(gatesInEffect, gate) {
			fields = append(fields, "featureGates."+gate)
		}
	}
	sort.Strings(fields)
	return fields
}

// setFields returns the paths of the fields of a struct that are not zero. A list, a map and a
// value with a text form of its own count as one field.
func setFields(v reflect.Value, prefix string) []string {
	var set []string
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if value.IsZero() || name == "-" {
			continue
		}
		if value.Kind() == reflect.Pointer {
			value = value.Elem()
		}
		switch {
		case name == "": // inlined
			set = append(set, setFields(value, prefix)...)
		case isGroup(value.Type()):
			set = append(set, setFields(value, prefix+name+".")...)
		default:
			set = append(set, prefix+name)
		}
	}
	return set
}

// isGroup reports whether a type groups fields, rather than being one value.
func isGroup(t reflect.Type) bool {
	hasTextForm := reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
	return t.Kind() == reflect.Struct && !hasTextForm
}
