package config

import (
	"encoding/json"
	"reflect"
	"slices"
	"sort"
	"strings"
)

// actedOn are the fields that the agent acts on. Every other field is read, validated and
// inert; a field moves here with the change that makes it work.
var actedOn = []string{
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
	"crashLoopBackOff.maxContainerRestartPeriod",
	"enableContentionProfiling",
	"enableControllerAttachDetach",
	"enableDebugFlagsHandler",
	"enableDebuggingHandlers",
	"enableProfilingHandler",
	"enableServer",
	"enableSystemLogHandler",
	"enableSystemLogQuery",
	"eventBurst",
	"eventRecordQPS",
	"fileCheckFrequency",
	"healthzBindAddress",
	"healthzPort",
	"httpCheckFrequency",
	"imageServiceEndpoint",
	"kubeAPIBurst",
	"kubeAPIQPS",
	"kubeReserved",
	"kubeletCgroups",
	"logging.format",
	"logging.verbosity",
	"maxParallelImagePulls",
	"maxPods",
	"nodeLeaseDurationSeconds",
	"nodeStatusMaxImages",
	"nodeStatusReportFrequency",
	"nodeStatusUpdateFrequency",
	"podLogsDir",
	"podPidsLimit",
	"podsPerCore",
	"port",
	"providerID",
	"readOnlyPort",
	"registerNode",
	"registerWithTaints",
	"registryBurst",
	"registryPullQPS",
	"reservedSystemCPUs",
	"resolvConf",
	"rotateCertificates",
	"runtimeRequestTimeout",
	"serializeImagePulls",
	"serverTLSBootstrap",
	"staticPodPath",
	"staticPodURL",
	"staticPodURLHeader",
	"streamingConnectionIdleTimeout",
	"syncFrequency",
	"systemCgroups",
	"systemReserved",
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

// gatesActedOn are the feature gates that the agent acts on.
var gatesActedOn = []string{"ComponentFlagz", "ComponentStatusz", "ContainerCheckpoint",
	"EventedPLEG", "PodLogsQuerySplitStreams", gateRestartsAll}

// Inert returns the paths of the fields that are set but that the agent does not act on yet, in
// order. It is for a configuration without defaults.
func Inert(c *configuration) []string {
	acted := map[string]bool{"apiVersion": true, "kind": true}
	for _, field := range actedOn {
		acted[field] = true
	}
	var inert []string
	for _, field := range setFields(reflect.ValueOf(c).Elem(), "") {
		if !acted[field] && field != "featureGates" {
			inert = append(inert, field)
		}
	}
	for gate := range c.FeatureGates { //ordered: sorted below
		if !slices.Contains(gatesActedOn, gate) {
			inert = append(inert, "featureGates."+gate)
		}
	}
	sort.Strings(inert)
	return inert
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

// isGroup says whether a type only groups fields, rather than being one value.
func isGroup(t reflect.Type) bool {
	text := reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
	return t.Kind() == reflect.Struct && !text
}
