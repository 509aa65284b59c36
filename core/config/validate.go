package config

import (
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Validate returns what is wrong with a configuration that has its defaults, by field: what the
// kubelet refuses, and what it would only stumble over later (an address that is no IP).
func Validate(c *configuration) field.ErrorList {
	v := &rules{config: c}
	v.sources()
	v.server()
	v.nodeStatus()
	v.images()
	v.podLogs()
	v.resources()
	v.enforcement()
	v.reservedMemory()
	v.eviction()
	v.shutdown()
	v.logging()
	v.tracing()
	return v.errs
}

// rules collects the errors of one configuration.
type rules struct {
	config *configuration
	errs   field.ErrorList
}

// gate says whether a feature gate is on; byDefault is its default in v1.36.
func (v *rules) gate(name string, byDefault bool) bool {
	if on, set := v.config.FeatureGates[name]; set {
		return on
	}
	return byDefault
}

func (v *rules) sources() {
	c := v.config
	v.durationPositive("syncFrequency", c.SyncFrequency)
	v.durationPositive("fileCheckFrequency", c.FileCheckFrequency)
	v.durationPositive("httpCheckFrequency", c.HTTPCheckFrequency)
	v.durationPositive("runtimeRequestTimeout", c.RuntimeRequestTimeout)
	v.absolute("staticPodPath", c.StaticPodPath)
	v.endpoint("containerRuntimeEndpoint", c.ContainerRuntimeEndpoint)
	if c.ImageServiceEndpoint != "" {
		v.endpoint("imageServiceEndpoint", c.ImageServiceEndpoint)
	}
	v.atLeast("kubeAPIBurst", int64(c.KubeAPIBurst), 0)
	v.atLeast("kubeAPIQPS", int64(*c.KubeAPIQPS), 0)
	v.atLeast("eventBurst", int64(c.EventBurst), 0)
	v.atLeast("eventRecordQPS", int64(*c.EventRecordQPS), 0)
	v.oneOf("configMapAndSecretChangeDetectionStrategy",
		string(c.ConfigMapAndSecretChangeDetectionStrategy), "Get", "Cache", "Watch")
	if c.RunOnce {
		v.wrong("runOnce", c.RunOnce, "running once and exiting is not supported")
	}
	if len(c.ShowHiddenMetricsForVersion) > 0 && c.ShowHiddenMetricsForVersion != "1.35" {
		v.wrong("showHiddenMetricsForVersion", c.ShowHiddenMetricsForVersion,
			"must be the previous minor version, 1.35")
	}
}

func (v *rules) server() {
	c := v.config
	v.ip("address", c.Address)
	v.ip("healthzBindAddress", c.HealthzBindAddress)
	v.within("port", int64(c.Port), 1, 65535)
	v.within("readOnlyPort", int64(c.ReadOnlyPort), 0, 65535)
	v.within("healthzPort", int64(*c.HealthzPort), 0, 65535)
	v.oneOf("authorization.mode", string(c.Authorization.Mode),
		string(kubeletconfigv1beta1.KubeletAuthorizationModeAlwaysAllow),
		string(kubeletconfigv1beta1.KubeletAuthorizationModeWebhook))
	v.oneOf("tlsMinVersion", c.TLSMinVersion, "",
		"VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13")
	if c.ServerTLSBootstrap && !v.gate("RotateKubeletServerCertificate", true) {
		v.wrong("serverTLSBootstrap", true, "needs feature gate RotateKubeletServerCertificate")
	}
	if *c.EnableSystemLogQuery && !*c.EnableSystemLogHandler {
		v.wrong("enableSystemLogQuery", true, "needs enableSystemLogHandler")
	}
}

func (v *rules) nodeStatus() {
	c := v.config
	v.atLeast("nodeLeaseDurationSeconds", int64(c.NodeLeaseDurationSeconds), 1)
	v.atLeast("nodeStatusMaxImages", int64(*c.NodeStatusMaxImages), -1)
	for i, taint := range c.RegisterWithTaints {
		p := field.NewPath("registerWithTaints").Index(i)
		for _, problem := range validation.IsQualifiedName(taint.Key) {
			v.add(field.Invalid(p.Child("key"), taint.Key, problem))
		}
		for _, problem := range validation.IsValidLabelValue(taint.Value) {
			v.add(field.Invalid(p.Child("value"), taint.Value, problem))
		}
		v.oneOf(p.Child("effect").String(), string(taint.Effect),
			"NoSchedule", "PreferNoSchedule", "NoExecute")
		if taint.TimeAdded != nil {
			v.add(field.Forbidden(p.Child("timeAdded"), "is set by the node itself"))
		}
	}
}

func (v *rules) images() {
	c := v.config
	v.atLeast("registryBurst", int64(c.RegistryBurst), 0)
	v.atLeast("registryPullQPS", int64(*c.RegistryPullQPS), 0)
	v.durationAtLeast("imageMinimumGCAge", c.ImageMinimumGCAge, 0)
	v.durationAtLeast("imageMaximumGCAge", c.ImageMaximumGCAge, 0)
	oldest := c.ImageMaximumGCAge.Duration
	if oldest > 0 && oldest <= c.ImageMinimumGCAge.Duration {
		v.wrong("imageMaximumGCAge", oldest.String(),
			"must be more than imageMinimumGCAge, %v", c.ImageMinimumGCAge.Duration)
	}
	high, low := int64(*c.ImageGCHighThresholdPercent), int64(*c.ImageGCLowThresholdPercent)
	v.within("imageGCHighThresholdPercent", high, 0, 100)
	v.within("imageGCLowThresholdPercent", low, 0, 100)
	if low >= high {
		v.wrong("imageGCLowThresholdPercent", low,
			"must be less than imageGCHighThresholdPercent")
	}
	if most := c.MaxParallelImagePulls; most != nil {
		v.atLeast("maxParallelImagePulls", int64(*most), 1)
		if *c.SerializeImagePulls && *most > 1 {
			v.wrong("maxParallelImagePulls", *most,
				"cannot be more than 1 unless serializeImagePulls is false")
		}
	}
	v.pullCredentials()
}

func (v *rules) pullCredentials() {
	c := v.config
	const allowList = kubeletconfigv1beta1.NeverVerifyAllowlistedImages
	v.oneOf("imagePullCredentialsVerificationPolicy",
		string(c.ImagePullCredentialsVerificationPolicy),
		string(kubeletconfigv1beta1.NeverVerify),
		string(kubeletconfigv1beta1.NeverVerifyPreloadedImages), string(allowList),
		string(kubeletconfigv1beta1.AlwaysVerify))
	images := c.PreloadedImagesVerificationAllowlist
	if len(images) > 0 && c.ImagePullCredentialsVerificationPolicy != allowList {
		v.wrong("preloadedImagesVerificationAllowlist", images,
			"needs imagePullCredentialsVerificationPolicy %s", allowList)
	}
}

// podLogs is about the directory and the rotation of logs.
func (v *rules) podLogs() {
	c := v.config
	dir := c.PodLogsDir
	v.absolute("podLogsDir", dir)
	if path.IsAbs(dir) && path.Clean(dir) != strings.TrimSuffix(dir, "/") {
		v.wrong("podLogsDir", dir, "must be a normalized path, as %s", path.Clean(dir))
	}
	if strings.ContainsFunc(dir, func(r rune) bool { return r > 127 }) {
		v.wrong("podLogsDir", dir, "must be ASCII only")
	}
	v.quantity(at("containerLogMaxSize"), c.ContainerLogMaxSize)
	v.atLeast("containerLogMaxFiles", int64(*c.ContainerLogMaxFiles), 2)
	v.atLeast("containerLogMaxWorkers", int64(*c.ContainerLogMaxWorkers), 1)
	v.durationAtLeast("containerLogMonitorInterval", *c.ContainerLogMonitorInterval, 3*time.Second)
	v.durationWithin("crashLoopBackOff.maxContainerRestartPeriod",
		*c.CrashLoopBackOff.MaxContainerRestartPeriod, time.Second, 300*time.Second)
}

func (v *rules) shutdown() {
	c := v.config
	total, critical := c.ShutdownGracePeriod, c.ShutdownGracePeriodCriticalPods
	if critical.Duration > total.Duration {
		v.wrong("shutdownGracePeriodCriticalPods", critical.Duration.String(),
			"must not be more than shutdownGracePeriod, %v", total.Duration)
	}
	v.zeroOrSeconds("shutdownGracePeriod", total)
	v.zeroOrSeconds("shutdownGracePeriodCriticalPods", critical)
	if len(c.ShutdownGracePeriodByPodPriority) == 0 {
		return
	}
	if total.Duration > 0 || critical.Duration > 0 {
		v.wrong("shutdownGracePeriodByPodPriority", len(c.ShutdownGracePeriodByPodPriority),
			"cannot be set together with shutdownGracePeriod")
	}
	if !v.gate("GracefulNodeShutdownBasedOnPodPriority", true) {
		v.wrong("shutdownGracePeriodByPodPriority", len(c.ShutdownGracePeriodByPodPriority),
			"needs feature gate GracefulNodeShutdownBasedOnPodPriority")
	}
}

func (v *rules) zeroOrSeconds(name string, d metav1.Duration) {
	if d.Duration != 0 && d.Duration < time.Second {
		v.wrong(name, d.Duration.String(), "must be 0 or at least 1s")
	}
}

func (v *rules) logging() {
	l := v.config.Logging
	v.oneOf("logging.format", l.Format, "text", "json")
	v.within("logging.verbosity", int64(l.Verbosity), 0, 1<<31-1)
	v.durationAtLeast("logging.flushFrequency", l.FlushFrequency.Duration, 0)
	if len(l.VModule) > 0 && l.Format != "text" {
		v.wrong("logging.vmodule", len(l.VModule), "is only for logging.format text")
	}
	for i, item := range l.VModule {
		p := field.NewPath("logging", "vmodule").Index(i).Child("filePattern")
		if item.FilePattern == "" || strings.ContainsAny(item.FilePattern, "=,") {
			v.add(field.Invalid(p, item.FilePattern, "must be a file name without '=' and ','"))
		}
	}
	split := l.Options.Text.SplitStream || l.Options.JSON.SplitStream
	if split && !v.gate("LoggingAlphaOptions", false) {
		v.wrong("logging.options", "splitStream", "needs feature gate LoggingAlphaOptions")
	}
}

func (v *rules) tracing() {
	t := v.config.Tracing
	if t == nil {
		return
	}
	if t.SamplingRatePerMillion != nil {
		v.within("tracing.samplingRatePerMillion", int64(*t.SamplingRatePerMillion), 0, 1_000_000)
	}
	if t.Endpoint == nil {
		return
	}
	scheme, address, has := strings.Cut(*t.Endpoint, "://")
	if !has {
		scheme, address = "dns", *t.Endpoint
	}
	switch {
	case strings.TrimSpace(address) == "":
		v.wrong("tracing.endpoint", *t.Endpoint, "must not be empty")
	case strings.ContainsFunc(*t.Endpoint, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		v.wrong("tracing.endpoint", *t.Endpoint, "must not have spaces or control characters")
	case !slices.Contains(tracingSchemes, scheme):
		v.wrong("tracing.endpoint", *t.Endpoint, "the scheme must be one of %s, or none",
			strings.Join(tracingSchemes, ", "))
	}
}

// tracingSchemes are those of the endpoint of a collector.
var tracingSchemes = []string{"dns", "unix", "unix-abstract"}
