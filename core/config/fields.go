package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Effect is what the agent does with a field of the configuration.
type Effect int

const (
	// Acted: the agent acts on the field.
	Acted Effect = iota
	// Immaterial: the field has no effect, and nothing that a user can see depends on it.
	Immaterial
	// Refused: a value other than the default keeps the agent from starting.
	Refused
)

// FieldEffect is what the agent does with one field.
type FieldEffect struct {
	Path   string
	Effect Effect
	Reason string // for a field that is not acted on
}

const noResourceManagers = "CPUs, memory and devices are not assigned to single containers yet"

// Fields has every field of the configuration once, sorted by path, so that no field is without an
// effect silently. A test compares it with the type. A list, a map and a value with a text form of
// its own count as one field.
var Fields = []FieldEffect{
	{"address", Acted, ""},
	{"allowedUnsafeSysctls", Acted, ""},
	{"apiVersion", Immaterial, "the type of the file, which is checked"},
	{"authentication.anonymous.enabled", Acted, ""},
	{"authentication.webhook.cacheTTL", Acted, ""},
	{"authentication.webhook.enabled", Acted, ""},
	{"authentication.x509.clientCAFile", Acted, ""},
	{"authorization.mode", Acted, ""},
	{"authorization.webhook.cacheAuthorizedTTL", Acted, ""},
	{"authorization.webhook.cacheUnauthorizedTTL", Acted, ""},
	{"cgroupDriver", Acted, ""},
	{"cgroupRoot", Acted, ""},
	{"cgroupsPerQOS", Acted, ""},
	{"clusterDNS", Acted, ""},
	{"clusterDomain", Acted, ""},
	{"configMapAndSecretChangeDetectionStrategy", Acted, ""},
	{"containerLogMaxFiles", Acted, ""},
	{"containerLogMaxSize", Acted, ""},
	{"containerLogMaxWorkers", Acted, ""},
	{"containerLogMonitorInterval", Acted, ""},
	{"containerRuntimeEndpoint", Acted, ""},
	{"contentType", Acted, ""},
	{"cpuCFSQuota", Acted, ""},
	{"cpuCFSQuotaPeriod", Acted, ""},
	{"cpuManagerPolicy", Refused, noResourceManagers},
	{"cpuManagerPolicyOptions", Refused, noResourceManagers},
	{"cpuManagerReconcilePeriod", Immaterial, "the policy none, which is the only one, has " +
		"nothing to reconcile"},
	{"crashLoopBackOff.maxContainerRestartPeriod", Acted, ""},
	{"enableContentionProfiling", Acted, ""},
	{"enableControllerAttachDetach", Acted, ""},
	{"enableDebugFlagsHandler", Acted, ""},
	{"enableDebuggingHandlers", Acted, ""},
	{"enableProfilingHandler", Acted, ""},
	{"enableServer", Acted, ""},
	{"enableSystemLogHandler", Acted, ""},
	{"enableSystemLogQuery", Acted, ""},
	{"enforceNodeAllocatable", Acted, ""},
	{"eventBurst", Acted, ""},
	{"eventRecordQPS", Acted, ""},
	{"evictionHard", Acted, ""},
	{"evictionMaxPodGracePeriod", Acted, ""},
	{"evictionMinimumReclaim", Acted, ""},
	{"evictionPressureTransitionPeriod", Acted, ""},
	{"evictionSoft", Acted, ""},
	{"evictionSoftGracePeriod", Acted, ""},
	{"failCgroupV1", Acted, ""},
	{"failSwapOn", Acted, ""},
	{"featureGates", Acted, ""},
	{"fileCheckFrequency", Acted, ""},
	{"hairpinMode", Immaterial, "the network of pods is set up by the runtime's network " +
		"plugins; the kubelet does not read the field either"},
	{"healthzBindAddress", Acted, ""},
	{"healthzPort", Acted, ""},
	{"httpCheckFrequency", Acted, ""},
	{"imageGCHighThresholdPercent", Acted, ""},
	{"imageGCLowThresholdPercent", Acted, ""},
	{"imageMaximumGCAge", Acted, ""},
	{"imageMinimumGCAge", Acted, ""},
	{"imagePullCredentialsVerificationPolicy", Acted, ""},
	{"imageServiceEndpoint", Acted, ""},
	{"iptablesDropBit", Immaterial, "the kubelet does not read the field any more: the chains " +
		"that used it are gone (KEP-3178)"},
	{"iptablesMasqueradeBit", Immaterial, "the kubelet does not read the field any more: the " +
		"chains that used it are gone (KEP-3178)"},
	{"kernelMemcgNotification", Acted, ""},
	{"kind", Immaterial, "the type of the file, which is checked"},
	{"kubeAPIBurst", Acted, ""},
	{"kubeAPIQPS", Acted, ""},
	{"kubeReserved", Acted, ""},
	{"kubeReservedCgroup", Acted, ""},
	{"kubeletCgroups", Acted, ""},
	{"localStorageCapacityIsolation", Acted, ""},
	{"logging.flushFrequency", Acted, ""},
	{"logging.format", Acted, ""},
	{"logging.options.json.infoBufferSize", Acted, ""},
	{"logging.options.json.splitStream", Acted, ""},
	{"logging.options.text.infoBufferSize", Acted, ""},
	{"logging.options.text.splitStream", Acted, ""},
	{"logging.verbosity", Acted, ""},
	{"logging.vmodule", Acted, ""},
	{"makeIPTablesUtilChains", Acted, ""},
	{"maxOpenFiles", Acted, ""},
	{"maxParallelImagePulls", Acted, ""},
	{"maxPods", Acted, ""},
	{"memoryManagerPolicy", Refused, noResourceManagers},
	{"memoryReservationPolicy", Acted, ""},
	{"memorySwap.swapBehavior", Acted, ""},
	{"memoryThrottlingFactor", Acted, ""},
	{"mergeDefaultEvictionSettings", Acted, ""},
	{"nodeLeaseDurationSeconds", Acted, ""},
	{"nodeStatusMaxImages", Acted, ""},
	{"nodeStatusReportFrequency", Acted, ""},
	{"nodeStatusUpdateFrequency", Acted, ""},
	{"oomScoreAdj", Acted, ""},
	{"podCIDR", Acted, ""},
	{"podLogsDir", Acted, ""},
	{"podPidsLimit", Acted, ""},
	{"podsPerCore", Acted, ""},
	{"port", Acted, ""},
	{"preloadedImagesVerificationAllowlist", Acted, ""},
	{"protectKernelDefaults", Acted, ""},
	{"providerID", Acted, ""},
	{"qosReserved", Acted, ""},
	{"readOnlyPort", Acted, ""},
	{"registerNode", Acted, ""},
	{"registerWithTaints", Acted, ""},
	{"registryBurst", Acted, ""},
	{"registryPullQPS", Acted, ""},
	{"reservedMemory", Refused, noResourceManagers},
	{"reservedSystemCPUs", Acted, ""},
	{"resolvConf", Acted, ""},
	{"rotateCertificates", Acted, ""},
	{"runOnce", Refused, "the kubelet refuses it as well"},
	{"runtimeRequestTimeout", Acted, ""},
	{"seccompDefault", Acted, ""},
	{"serializeImagePulls", Acted, ""},
	{"serverTLSBootstrap", Acted, ""},
	{"showHiddenMetricsForVersion", Immaterial, "no metric of the agent is hidden"},
	{"shutdownGracePeriod", Acted, ""},
	{"shutdownGracePeriodByPodPriority", Acted, ""},
	{"shutdownGracePeriodCriticalPods", Acted, ""},
	{"singleProcessOOMKill", Acted, ""},
	{"staticPodPath", Acted, ""},
	{"staticPodURL", Acted, ""},
	{"staticPodURLHeader", Acted, ""},
	{"streamingConnectionIdleTimeout", Acted, ""},
	{"syncFrequency", Acted, ""},
	{"systemCgroups", Acted, ""},
	{"systemReserved", Acted, ""},
	{"systemReservedCgroup", Acted, ""},
	{"tlsCertFile", Acted, ""},
	{"tlsCipherSuites", Acted, ""},
	{"tlsCurvePreferences", Acted, ""},
	{"tlsMinVersion", Acted, ""},
	{"tlsPrivateKeyFile", Acted, ""},
	{"topologyManagerPolicy", Refused, noResourceManagers},
	{"topologyManagerPolicyOptions", Refused, noResourceManagers},
	{"topologyManagerScope", Immaterial, "the policy none, which is the only one, does not " +
		"look at scopes"},
	{"tracing.endpoint", Acted, ""},
	{"tracing.samplingRatePerMillion", Acted, ""},
	{"userNamespaces.idsPerPod", Acted, ""},
	{"volumePluginDir", Immaterial, "a pod with a FlexVolume is refused by name, wherever its " +
		"driver is"},
	{"volumeStatsAggPeriod", Acted, ""},
}

// checkRefused adds an error for each field that the agent would have to act on and does not.
func (v *validator) checkRefused() {
	standard := &configuration{}
	SetDefaults(standard)
	for _, f := range Fields {
		if f.Effect == Refused && !hasValue(v.config, standard, f.Path) {
			v.add(field.Forbidden(fieldPath(f.Path), f.Reason))
		}
	}
}

// immaterialFields returns a text for each field that is set and has no effect.
func immaterialFields(c *configuration) []string {
	standard := &configuration{}
	SetDefaults(standard)
	var texts []string
	for _, f := range Fields {
		if f.Effect == Immaterial && !hasValue(c, standard, f.Path) {
			texts = append(texts, fmt.Sprintf("%s (%s)", f.Path, f.Reason))
		}
	}
	return texts
}

// hasValue reports whether a field has the same value in two configurations that have defaults.
func hasValue(c, standard *configuration, path string) bool {
	a, b := FieldValue(c, path), FieldValue(standard, path)
	isEmpty := func(v reflect.Value) bool {
		return (v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.Len() == 0
	}
	return isEmpty(a) && isEmpty(b) || reflect.DeepEqual(a.Interface(), b.Interface())
}

// FieldValue returns the field with a path, which can be set. Of a field that is a pointer it
// returns the value behind it, or the pointer if that is nil.
func FieldValue(c *configuration, path string) reflect.Value {
	v := reflect.ValueOf(c).Elem()
	for name := range strings.SplitSeq(path, ".") {
		if v.Kind() == reflect.Pointer { // a group that is not set, such as tracing
			v = reflect.Zero(v.Type().Elem())
		}
		if v = namedField(v, name); !v.IsValid() {
			panic("config: there is no field " + path)
		}
		if v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
	}
	return v
}

// namedField returns the field of a struct with a name in JSON; the zero Value if there is none.
func namedField(v reflect.Value, name string) reflect.Value {
	for i := range v.NumField() {
		tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		switch {
		case tag == name:
			return v.Field(i)
		case tag == "" && isGroup(v.Field(i).Type()): // inlined
			if found := namedField(v.Field(i), name); found.IsValid() {
				return found
			}
		}
	}
	return reflect.Value{}
}

// isGroup reports whether a type groups fields, rather than being one value.
func isGroup(t reflect.Type) bool {
	hasTextForm := reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
	return t.Kind() == reflect.Struct && !hasTextForm
}
