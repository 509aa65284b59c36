package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/logs"
	nodeobject "seedlet.dev/core/node"
	"seedlet.dev/core/userns"
)

// defaultRootDir is the kubelet's root directory. Other programs look for files there.
const defaultRootDir = "/var/lib/kubelet"

// flags are the values of the command line. Names and meanings are the kubelet's, except for
// --container-log-links-dir and --kernel-settings-root, which a second agent on the same machine
// needs.
type flags struct {
	configFile       string
	configDir        string
	rootDir          string
	linksDir         string
	hostnameOverride string
	api              apiFlags
	node             nodeFlags
	serve            serveFlags
	machine          machineFlags

	// These flags override a field of the configuration file if they are set.
	address            string
	fileCheckFrequency time.Duration
	healthzBindAddress string
	healthzPort        int32
	httpCheckFrequency time.Duration
	imageEndpoint      string
	loggingFormat      string
	manifestPath       string
	manifestURL        string
	manifestURLHeader  map[string][]string
	maxPods            int32
	readOnlyPort       int32
	runtimeEndpoint    string
	runtimeTimeout     time.Duration
	verbosity          uint32
}

// settings are the agent's configuration after files and flags were read.
type settings struct {
	config           *kubeletconfig.KubeletConfiguration // with defaults, validated
	warnings         []string                            // for the operator, a line each
	rootDir          string                              // absolute
	linksDir         string                              // absolute
	hostnameOverride string
	api              apiFlags // paths are absolute
	node             nodeobject.Options
	machine          machineFlags
	flags            map[string]string // as /flagz serves them
	ids              userns.Range      // set apart for the user namespaces of pods
}

func (f *flags) addTo(fs *pflag.FlagSet) {
	fs.StringVar(&f.configFile, "config", "", "KubeletConfiguration file")
	fs.StringVar(&f.configDir, "config-dir", "",
		"directory of *.conf files that are merged over the configuration file, by name")
	fs.StringVar(&f.rootDir, "root-dir", defaultRootDir,
		"directory of the agent's state and of the pods' directories")
	fs.StringVar(&f.linksDir, "container-log-links-dir", logs.LinksDirDefault,
		"directory for links to the logs of containers")
	fs.StringVar(&f.hostnameOverride, "hostname-override", "",
		"name of the node, instead of the machine's host name")
	f.api.addTo(fs)
	f.node.addTo(fs)
	f.serve.addTo(fs)
	f.machine.addTo(fs)

	fs.StringVar(&f.address, "address", "",
		"address that the secure port and the read-only port listen on (default 0.0.0.0)")
	fs.DurationVar(&f.fileCheckFrequency, "file-check-frequency", 0,
		"how often manifests are read again when no change has been seen (default 20s)")
	fs.StringVar(&f.healthzBindAddress, "healthz-bind-address", "",
		"address that the health port listens on (default 127.0.0.1)")
	fs.Int32Var(&f.healthzPort, "healthz-port", 0, "health port, 0 for none (default 10248)")
	fs.DurationVar(&f.httpCheckFrequency, "http-check-frequency", 0,
		"how often the manifest URL is read (default 20s)")
	fs.StringVar(&f.imageEndpoint, "image-service-endpoint", "",
		"socket of the CRI image service, if it is not the runtime's")
	fs.StringVar(&f.loggingFormat, "logging-format", "", "format of logs: text or json")
	fs.StringVar(&f.manifestPath, "pod-manifest-path", "",
		"file or directory of manifests of static pods")
	f.addManifestURLTo(fs)
	fs.Int32Var(&f.maxPods, "max-pods", 0, "maximum number of pods on the node (default 110)")
	fs.Int32Var(&f.readOnlyPort, "read-only-port", 0, "read-only port, 0 for none")
	fs.StringVar(&f.runtimeEndpoint, "container-runtime-endpoint", "",
		"socket of the CRI container runtime (default unix:///run/containerd/containerd.sock)")
	fs.DurationVar(&f.runtimeTimeout, "runtime-request-timeout", 0,
		"how long a call of the container runtime may take (default 2m)")
	fs.Uint32VarP(&f.verbosity, "v", "v", 0, "verbosity of logs")
}

func (f *flags) addManifestURLTo(fs *pflag.FlagSet) {
	fs.StringVar(&f.manifestURL, "manifest-url", "", "URL of manifests of static pods")
	fs.Var(cliflag.NewColonSeparatedMultimapStringString(&f.manifestURLHeader),
		"manifest-url-header", "headers to send to the manifest URL, as name:value,name:value; "+
			"may be given more than once")
}

// settings reads the configuration files and applies the flags to them.
func (f *flags) settings(fs *pflag.FlagSet) (settings, error) {
	if f.rootDir == "" {
		return settings{}, fmt.Errorf("--root-dir: must not be empty")
	}
	rootDir, err := filepath.Abs(f.rootDir)
	if err != nil {
		return settings{}, fmt.Errorf("--root-dir: %w", err)
	}
	linksDir, err := filepath.Abs(f.linksDir)
	if err != nil {
		return settings{}, fmt.Errorf("--container-log-links-dir: %w", err)
	}
	api, err := f.api.absolute()
	if err != nil {
		return settings{}, err
	}
	options, err := f.node.options()
	if err != nil {
		return settings{}, err
	}
	loaded, err := loadConfig(f.configFile, f.configDir)
	if err != nil {
		return settings{}, err
	}
	if err := f.override(fs, loaded.Config); err != nil {
		return settings{}, err
	}
	if err := loaded.Finish(); err != nil {
		return settings{}, f.inFiles(err)
	}
	return settings{
		config: loaded.Config, warnings: loaded.Warnings,
		rootDir: rootDir, linksDir: linksDir, hostnameOverride: f.hostnameOverride,
		api: api, machine: f.machine,
		node: options, flags: servedFlags(fs),
	}, nil
}

// inFiles adds the names of the configuration files to an error about their fields.
func (f *flags) inFiles(err error) error {
	switch {
	case f.configFile != "" && f.configDir != "":
		return fmt.Errorf("%s and %s/*.conf: %w", f.configFile, f.configDir, err)
	case f.configFile != "" || f.configDir != "":
		return fmt.Errorf("%s: %w", cmp.Or(f.configFile, f.configDir+"/*.conf"), err)
	}
	return err
}

// override sets the fields whose flags are on the command line. A zero there is a choice of the
// user, so flags are tested for having been set, not for their value.
func (f *flags) override(fs *pflag.FlagSet, c *kubeletconfig.KubeletConfiguration) error {
	manifestPath := f.manifestPath
	if manifestPath != "" { // in a flag, a relative path is relative to the working directory
		path, err := filepath.Abs(manifestPath)
		if err != nil {
			return fmt.Errorf("--pod-manifest-path: %w", err)
		}
		manifestPath = path
	}
	set := map[string]func(){
		"address":                    func() { c.Address = f.address },
		"container-runtime-endpoint": func() { c.ContainerRuntimeEndpoint = f.runtimeEndpoint },
		"file-check-frequency": func() {
			c.FileCheckFrequency = metav1.Duration{Duration: f.fileCheckFrequency}
		},
		"healthz-bind-address": func() { c.HealthzBindAddress = f.healthzBindAddress },
		"healthz-port":         func() { c.HealthzPort = &f.healthzPort },
		"http-check-frequency": func() {
			c.HTTPCheckFrequency = metav1.Duration{Duration: f.httpCheckFrequency}
		},
		"image-service-endpoint": func() { c.ImageServiceEndpoint = f.imageEndpoint },
		"logging-format":         func() { c.Logging.Format = f.loggingFormat },
		"manifest-url":           func() { c.StaticPodURL = f.manifestURL },
		"manifest-url-header":    func() { c.StaticPodURLHeader = f.manifestURLHeader },
		"max-pods":               func() { c.MaxPods = f.maxPods },
		"pod-manifest-path":      func() { c.StaticPodPath = manifestPath },
		"read-only-port":         func() { c.ReadOnlyPort = f.readOnlyPort },
		"runtime-request-timeout": func() {
			c.RuntimeRequestTimeout = metav1.Duration{Duration: f.runtimeTimeout}
		},
		"v": func() { c.Logging.Verbosity = logsapi.VerbosityLevel(f.verbosity) },
	}
	var err error
	fs.Visit(func(flag *pflag.Flag) {
		if apply, ok := set[flag.Name]; ok {
			apply()
		}
		// In the file a zero means the default of these fields. On the command line it is an error.
		zero := flag.Value.String() == "0" || flag.Value.String() == "0s"
		if zero && slices.Contains([]string{
			"file-check-frequency", "http-check-frequency", "max-pods",
			"runtime-request-timeout"}, flag.Name) {
			err = fmt.Errorf("--%s: must be greater than zero", flag.Name)
		}
	})
	if err != nil {
		return err
	}
	f.machine.override(fs, c)
	if err := f.serve.override(fs, c); err != nil {
		return err
	}
	return f.node.override(fs, c)
}
