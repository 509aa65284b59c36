package config

import (
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/pullrecord"
)

// Validate returns the errors of a configuration that has its defaults: those that the kubelet
// reports, and those that the kubelet would only run into later (such as an address that is not an
// IP).
func Validate(c *configuration) field.ErrorList {
	v := &validator{config: c}
	v.checkGates()
	if len(v.errs) > 0 {
		return v.errs // which features there are decides what else is valid
	}
	v.checkSources()
	v.checkServer()
	v.checkNodeStatus()
	v.checkImages()
	v.checkPodLogs()
	v.checkResources()
	v.checkEnforcement()
	v.checkReservedMemory()
	v.checkEviction()
	v.checkShutdown()
	v.checkLogging()
	v.checkTracing()
	if len(v.errs) == 0 {
		v.checkRefused()
	}
	return v.errs
}

// validator collects the errors of one configuration.
type validator struct {
	config *configuration
	errs   field.ErrorList
}

func (v *validator) checkSources() {
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
	if len(c.ShowHiddenMetricsForVersion) > 0 && c.ShowHiddenMetricsForVersion != "1.35" {
		v.invalid("showHiddenMetricsForVersion", c.ShowHiddenMetricsForVersion,
			"must be the previous minor version, 1.35")
	}
}

func (v *validator) checkServer() {
	c := v.config
	v.ip("address", c.Address)
	v.ip("healthzBindAddress", c.HealthzBindAddress)
	v.inRange("port", int64(c.Port), 1, 65535)
	v.inRange("readOnlyPort", int64(c.ReadOnlyPort), 0, 65535)
	v.inRange("healthzPort", int64(*c.HealthzPort), 0, 65535)
	v.oneOf("authorization.mode", string(c.Authorization.Mode),
		string(kubeletconfigv1beta1.KubeletAuthorizationModeAlwaysAllow),
		string(kubeletconfigv1beta1.KubeletAuthorizationModeWebhook))
	v.oneOf("tlsMinVersion", c.TLSMinVersion, "",
		"VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13")
	if c.ServerTLSBootstrap && !isGateOn(v.config, "RotateKubeletServerCertificate") {
		v.invalid("serverTLSBootstrap", true, "needs feature gate RotateKubeletServerCertificate")
	}
	if *c.EnableSystemLogQuery && !*c.EnableSystemLogHandler {
		v.invalid("enableSystemLogQuery", true, "needs enableSystemLogHandler")
	}
}

func (v *validator) checkNodeStatus() {
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

func (v *validator) checkImages() {
	c := v.config
	v.atLeast("registryBurst", int64(c.RegistryBurst), 0)
	v.atLeast("registryPullQPS", int64(*c.RegistryPullQPS), 0)
	v.durationAtLeast("imageMinimumGCAge", c.ImageMinimumGCAge, 0)
	v.durationAtLeast("imageMaximumGCAge", c.ImageMaximumGCAge, 0)
	oldest := c.ImageMaximumGCAge.Duration
	if oldest > 0 && oldest <= c.ImageMinimumGCAge.Duration {
		v.invalid("imageMaximumGCAge", oldest.String(),
			"must be more than imageMinimumGCAge, %v", c.ImageMinimumGCAge.Duration)
	}
	high, low := int64(*c.ImageGCHighThresholdPercent), int64(*c.ImageGCLowThresholdPercent)
	v.inRange("imageGCHighThresholdPercent", high, 0, 100)
	v.inRange("imageGCLowThresholdPercent", low, 0, 100)
	if low >= high {
		v.invalid("imageGCLowThresholdPercent", low,
			"must be less than imageGCHighThresholdPercent, %d", high)
	}
	if most := c.MaxParallelImagePulls; most != nil {
		v.atLeast("maxParallelImagePulls", int64(*most), 1)
		if *c.SerializeImagePulls && *most > 1 {
			v.invalid("maxParallelImagePulls", *most,
				"cannot be more than 1 unless serializeImagePulls is false")
		}
	}
	v.checkPullCredentials()
}

func (v *validator) checkPullCredentials() {
	c := v.config
	if !PullRecordsEnabled(c) {
		v.refusePullCredentials()
		return
	}
	const allowList = kubeletconfigv1beta1.NeverVerifyAllowlistedImages
	v.oneOf("imagePullCredentialsVerificationPolicy",
		string(c.ImagePullCredentialsVerificationPolicy),
		string(kubeletconfigv1beta1.NeverVerify),
		string(kubeletconfigv1beta1.NeverVerifyPreloadedImages), string(allowList),
		string(kubeletconfigv1beta1.AlwaysVerify))
	images := c.PreloadedImagesVerificationAllowlist
	if len(images) > 0 && c.ImagePullCredentialsVerificationPolicy != allowList {
		v.invalid("preloadedImagesVerificationAllowlist", images,
			"needs imagePullCredentialsVerificationPolicy %s", allowList)
	}
	for _, pattern := range images {
		if problem := pullrecord.CheckPattern(pattern); problem != "" {
			v.invalid("preloadedImagesVerificationAllowlist", pattern, "%s", problem)
		}
	}
}

// refusePullCredentials refuses settings that would silently verify nothing.
func (v *validator) refusePullCredentials() {
	c := v.config
	const needs = "needs feature gate " + gateEnsureSecretPulled
	if c.ImagePullCredentialsVerificationPolicy != "" {
		v.add(field.Forbidden(fieldPath("imagePullCredentialsVerificationPolicy"), needs))
	}
	if len(c.PreloadedImagesVerificationAllowlist) > 0 {
		v.add(field.Forbidden(fieldPath("preloadedImagesVerificationAllowlist"), needs))
	}
}

// checkPodLogs checks the directory and the rotation of logs.
func (v *validator) checkPodLogs() {
	c := v.config
	dir := c.PodLogsDir
	v.absolute("podLogsDir", dir)
	if path.IsAbs(dir) && path.Clean(dir) != strings.TrimSuffix(dir, "/") {
		v.invalid("podLogsDir", dir, "must be a normalized path, as %s", path.Clean(dir))
	}
	if strings.ContainsFunc(dir, func(r rune) bool { return r > 127 }) {
		v.invalid("podLogsDir", dir, "must be ASCII only")
	}
	v.quantity(fieldPath("containerLogMaxSize"), c.ContainerLogMaxSize)
	v.atLeast("containerLogMaxFiles", int64(*c.ContainerLogMaxFiles), 2)
	v.atLeast("containerLogMaxWorkers", int64(*c.ContainerLogMaxWorkers), 1)
	v.durationAtLeast("containerLogMonitorInterval", *c.ContainerLogMonitorInterval, 3*time.Second)
	longest := *c.CrashLoopBackOff.MaxContainerRestartPeriod
	v.durationWithin("crashLoopBackOff.maxContainerRestartPeriod", longest, time.Second,
		300*time.Second)
	if longest.Duration != 300*time.Second && !isGateOn(c, gateCrashLoopMax) {
		v.invalid("crashLoopBackOff.maxContainerRestartPeriod", longest.Duration.String(),
			"needs feature gate "+gateCrashLoopMax)
	}
}

func (v *validator) checkShutdown() {
	c := v.config
	total, critical := c.ShutdownGracePeriod, c.ShutdownGracePeriodCriticalPods
	if critical.Duration > total.Duration {
		v.invalid("shutdownGracePeriodCriticalPods", critical.Duration.String(),
			"must not be more than shutdownGracePeriod, %v", total.Duration)
	}
	v.zeroOrSeconds("shutdownGracePeriod", total)
	v.zeroOrSeconds("shutdownGracePeriodCriticalPods", critical)
	if total.Duration+critical.Duration > 0 && !isGateOn(c, gateShutdown) {
		v.add(field.Forbidden(fieldPath("shutdownGracePeriod"), "needs feature gate "+gateShutdown))
	}
	if len(c.ShutdownGracePeriodByPodPriority) == 0 {
		return
	}
	if total.Duration > 0 || critical.Duration > 0 {
		v.add(field.Forbidden(fieldPath("shutdownGracePeriodByPodPriority"), "cannot be set together "+
			"with shutdownGracePeriod or shutdownGracePeriodCriticalPods"))
	}
	if !isGateOn(v.config, gateShutdownByPriority) {
		v.add(field.Forbidden(fieldPath("shutdownGracePeriodByPodPriority"),
			"needs feature gate GracefulNodeShutdownBasedOnPodPriority"))
	}
}

func (v *validator) zeroOrSeconds(name string, d metav1.Duration) {
	if d.Duration != 0 && d.Duration < time.Second {
		v.invalid(name, d.Duration.String(), "must be 0 or at least 1s")
	}
}

func (v *validator) checkLogging() {
	l := v.config.Logging
	v.oneOf("logging.format", l.Format, "text", "json")
	v.inRange("logging.verbosity", int64(l.Verbosity), 0, 1<<31-1)
	v.durationAtLeast("logging.flushFrequency", l.FlushFrequency.Duration, 0)
	if len(l.VModule) > 0 && l.Format != "text" {
		v.invalid("logging.vmodule", len(l.VModule), "is only for logging.format text")
	}
	for i, item := range l.VModule {
		p := field.NewPath("logging", "vmodule").Index(i).Child("filePattern")
		if item.FilePattern == "" || strings.ContainsAny(item.FilePattern, "=,") {
			v.add(field.Invalid(p, item.FilePattern, "must be a file name without '=' and ','"))
		}
	}
	v.checkStreams("logging.options.text", &l.Options.Text.OutputRoutingOptions)
	v.checkStreams("logging.options.json", &l.Options.JSON.OutputRoutingOptions)
}

// checkStreams checks whether the log may be split into two streams.
func (v *validator) checkStreams(name string, o *logsapi.OutputRoutingOptions) {
	if isGateOn(v.config, gateLoggingAlpha) {
		return
	}
	if o.SplitStream {
		v.invalid(name+".splitStream", true, "needs feature gate "+gateLoggingAlpha)
	}
	if size := o.InfoBufferSize.Value(); size != 0 {
		v.invalid(name+".infoBufferSize", size, "needs feature gate "+gateLoggingAlpha)
	}
}

func (v *validator) checkTracing() {
	t := v.config.Tracing
	if t == nil {
		return
	}
	if t.SamplingRatePerMillion != nil {
		v.inRange("tracing.samplingRatePerMillion", int64(*t.SamplingRatePerMillion), 0, 1_000_000)
	}
	if t.Endpoint == nil {
		return
	}
	scheme, address, hasScheme := strings.Cut(*t.Endpoint, "://")
	if !hasScheme {
		scheme, address = "dns", *t.Endpoint
	}
	switch {
	case strings.TrimSpace(address) == "":
		v.invalid("tracing.endpoint", *t.Endpoint, "must not be empty")
	case strings.ContainsFunc(*t.Endpoint, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		v.invalid("tracing.endpoint", *t.Endpoint, "must not have spaces or control characters")
	case !slices.Contains(tracingSchemes, scheme):
		v.invalid("tracing.endpoint", *t.Endpoint, "the scheme must be one of %s, or none",
			strings.Join(tracingSchemes, ", "))
	}
}

// tracingSchemes are the schemes of a collector's endpoint.
var tracingSchemes = []string{"dns", "unix", "unix-abstract"}
