package config

import (
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDefaultsAreIdempotentAndValid(t *testing.T) {
	once := &configuration{}
	SetDefaults(once)
	twice := once.DeepCopy()
	SetDefaults(twice)
	if diff := cmp.Diff(once, twice); diff != "" {
		t.Error(diff)
	}
	if errs := Validate(once); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
}

// optional are the fields that are empty by default.
var optional = []string{
	"allowedUnsafeSysctls", "authentication.x509.clientCAFile", "cgroupRoot", "clusterDNS",
	"clusterDomain", "cpuManagerPolicyOptions", "enableContentionProfiling",
	"evictionMaxPodGracePeriod", "evictionMinimumReclaim", "evictionSoft",
	"evictionSoftGracePeriod", "featureGates", "imageMaximumGCAge", "imageServiceEndpoint",
	"kernelMemcgNotification", "kubeReserved", "kubeReservedCgroup", "kubeletCgroups",
	"logging.options.json.splitStream", "logging.options.text.splitStream",
	"logging.verbosity", "logging.vmodule", "maxParallelImagePulls", "memorySwap.swapBehavior",
	"podCIDR", "podsPerCore", "preloadedImagesVerificationAllowlist", "protectKernelDefaults",
	"providerID", "qosReserved", "readOnlyPort", "registerWithTaints", "reservedMemory",
	"reservedSystemCPUs", "rotateCertificates", "runOnce", "serverTLSBootstrap",
	"showHiddenMetricsForVersion", "shutdownGracePeriod", "shutdownGracePeriodByPodPriority",
	"shutdownGracePeriodCriticalPods", "singleProcessOOMKill", "staticPodPath",
	"staticPodURL", "staticPodURLHeader", "systemCgroups", "systemReserved",
	"systemReservedCgroup", "tlsCertFile", "tlsCipherSuites", "tlsCurvePreferences",
	"tlsMinVersion", "tlsPrivateKeyFile", "topologyManagerPolicyOptions", "tracing.endpoint",
	"tracing.samplingRatePerMillion",
}

// Every field has a default or is listed as optional, so that a field of a newer version is not
// overlooked.
func TestEveryFieldHasADefaultOrNone(t *testing.T) {
	c := &configuration{}
	SetDefaults(c)
	set := setFields(reflect.ValueOf(c).Elem(), "")
	for _, path := range allFields(reflect.TypeFor[configuration](), "") {
		if slices.Contains(set, path) == slices.Contains(optional, path) {
			t.Errorf("%s: has a default: %v; listed as optional: %v", path,
				slices.Contains(set, path), slices.Contains(optional, path))
		}
	}
}

// Machines with cgroup v1 are supported, so only a user can exclude them.
func TestCgroupV1DoesNotFailByDefault(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "failCgroupV1: false\n": false, "failCgroupV1: true\n": true,
	} {
		base := configFile("/c", text)
		l := loadAndFinish(t, &base)
		if *l.Config.FailCgroupV1 != want || len(l.Warnings) > 0 {
			t.Errorf("%q: failCgroupV1 is %v, warnings %q", text, *l.Config.FailCgroupV1, l.Warnings)
		}
	}
}

func TestDefaultsThatDependOnOthers(t *testing.T) {
	base := configFile("/c", "nodeStatusUpdateFrequency: 7s\nmaxParallelImagePulls: 4\n"+
		"podPidsLimit: -9\nevictionHard: {memory.available: 5%}\n")
	c := loadAndFinish(t, &base).Config
	if got := c.NodeStatusReportFrequency.Duration.String(); got != "7s" {
		t.Errorf("nodeStatusReportFrequency %s", got)
	}
	if *c.SerializeImagePulls || *c.PodPidsLimit != -1 {
		t.Errorf("serializeImagePulls %v, podPidsLimit %d", *c.SerializeImagePulls, *c.PodPidsLimit)
	}
	if len(c.EvictionHard) != 1 {
		t.Errorf("thresholds of the user replace all defaults: %v", c.EvictionHard)
	}
	base = configFile("/c", "mergeDefaultEvictionSettings: true\nevictionHard: {pid.available: 5%}\n")
	if c = loadAndFinish(t, &base).Config; len(c.EvictionHard) != 6 {
		t.Errorf("thresholds must be merged with the defaults: %v", c.EvictionHard)
	}
}
