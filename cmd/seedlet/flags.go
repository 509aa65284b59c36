package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/config"
	"seedlet.dev/core/credentials"
	"seedlet.dev/core/logs"
	nodeobject "seedlet.dev/core/node"
	"seedlet.dev/core/userns"
)

// defaultRootDir is the kubelet's root directory. Other programs look for files there.
const defaultRootDir = "/var/lib/kubelet"

// flags are the values of the flags that have no field in the configuration. Names and meanings are
// the kubelet's, except for --container-log-links-dir and --kernel-settings-root, which a second
// agent on the same machine needs.
type flags struct {
	configFile       string
	configDir        string
	rootDir          string
	linksDir         string
	hostnameOverride string
	runtimeCgroups   string
	seccompDefault   bool
	mounterPath      string
	version          versionValue
	lock             lockFlags
	api              apiFlags
	node             nodeFlags
	machine          machineFlags
	credentials      credentialFlags
}

// settings are the agent's configuration after files and flags were read.
type settings struct {
	config           *kubeletconfig.KubeletConfiguration // with defaults, validated
	fileWarnings     []string                            // what is odd in the files, a line each
	warnings         []string                            // for the operator, a line each
	rootDir          string                              // absolute
	linksDir         string                              // absolute
	hostnameOverride string
	runtimeCgroups   string
	lock             lockFlags
	api              apiFlags // paths are absolute
	node             nodeobject.Options
	machine          machineFlags
	credentials      credentials.Settings
	flags            map[string]string // as /flagz serves them
	ids              userns.Range      // set apart for the user namespaces of pods
}

// commandLine is the agent's set of flags, and what they are bound to.
type commandLine struct {
	set    *pflag.FlagSet
	flags  flags
	config *kubeletconfig.KubeletConfiguration
	help   bool
}

// newCommandLine returns the flags, with the values of a configuration as defaults. An underscore
// in the name of a flag counts as a hyphen, as for the kubelet.
func newCommandLine(c *kubeletconfig.KubeletConfiguration) *commandLine {
	line := &commandLine{set: pflag.NewFlagSet("seedlet", pflag.ContinueOnError), config: c}
	line.set.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	line.flags.addTo(line.set)
	addConfigFlags(line.set, c)
	addCadvisorFlags(line.set)
	line.set.BoolVarP(&line.help, "help", "h", false, "print the flags")
	return line
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
	fs.StringVar(&f.runtimeCgroups, "runtime-cgroups", "",
		"cgroup of the container runtime, for its statistics")
	fs.BoolVar(&f.seccompDefault, "seccomp-default", false,
		"containers without a seccomp profile have the runtime's default one")
	fs.StringVar(&f.mounterPath, "experimental-mounter-path", "",
		"program that mounts: the agent does not start with one")
	fs.Lookup("experimental-mounter-path").Deprecated = "a later release will not know it"
	f.version = "false"
	fs.Var(&f.version, "version", "print the version, or all about it (=raw), and exit; "+
		"=v1.2.3+mine: report that version")
	fs.Lookup("version").NoOptDefVal = "true"
	addCollectionFlags(fs)
	f.lock.addTo(fs)
	f.api.addTo(fs)
	f.node.addTo(fs)
	f.machine.addTo(fs)
	f.credentials.addTo(fs)
}

// addCollectionFlags adds the flags of the collection of containers that have exited. Nothing reads
// them: of each container one run that has exited stays.
func addCollectionFlags(flags *pflag.FlagSet) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.Duration("minimum-container-ttl-duration", time.Duration(0),
		"how long a container that has exited stays at least")
	fs.Int32("maximum-dead-containers-per-container", 1, "exited runs of each container that stay")
	fs.Int32("maximum-dead-containers", -1, "exited containers that stay, -1 for no limit")
	fs.VisitAll(func(flag *pflag.Flag) { flag.Deprecated = "it has no effect: " + oneRunStays })
	flags.AddFlagSet(fs)
}

const oneRunStays = "one run that has exited stays of each container, for its log"

// readSettings reads the command line and the configuration files. If it fails, what else is odd in
// the files has been written beside the warnings of deprecated flags: it may explain the error.
func readSettings(line *commandLine, args []string) (s *settings, err error) {
	f := &line.flags
	if len(line.set.Args()) > 0 {
		return nil, fmt.Errorf("unknown argument %q", line.set.Arg(0))
	}
	if s, err = f.settings(); err != nil {
		return nil, err
	}
	loaded, err := loadConfig(f.configFile, f.configDir, line.config.FeatureGates)
	var ofFiles []string
	if loaded != nil {
		ofFiles = slices.Clone(loaded.Warnings)
	}
	defer func() {
		if err == nil {
			return
		}
		for _, warning := range ofFiles {
			fmt.Fprintln(line.set.Output(), "Warning:", warning)
		}
	}()
	if err != nil {
		return nil, err
	}
	if err := overrideConfig(args, loaded.Config); err != nil {
		return nil, err
	}
	if f.seccompDefault {
		*loaded.Config.SeccompDefault = true
	}
	if err := loaded.Finish(); err != nil {
		return nil, f.inFiles(err)
	}
	if err := checkTokensForPlugins(s.credentials.Providers, loaded.Config); err != nil {
		return nil, err
	}
	s.config, s.flags = loaded.Config, servedFlags(line.set)
	s.fileWarnings = ofFiles
	s.warnings = slices.Concat(loaded.Warnings[len(ofFiles):], immaterialFlags(line.set),
		tlsWarnings(s.config))
	return s, nil
}

// immaterialFlags returns a warning if flags are set that have no effect.
func immaterialFlags(fs *pflag.FlagSet) []string {
	var texts []string
	fs.Visit(func(flag *pflag.Flag) {
		if reason := immaterialReason(flag.Name); reason != "" {
			texts = append(texts, fmt.Sprintf("--%s (%s)", flag.Name, reason))
		}
	})
	if len(texts) == 0 {
		return nil
	}
	return []string{"flags that are set and have no effect: " + strings.Join(texts, ", ")}
}

// immaterialReason returns why a flag without a field has no effect; empty if it has one.
func immaterialReason(name string) string {
	for _, f := range cadvisorFlags {
		if f.name == name {
			return f.reason
		}
	}
	switch name {
	case "minimum-container-ttl-duration", "maximum-dead-containers",
		"maximum-dead-containers-per-container":
		return oneRunStays
	}
	return ""
}

// settings returns the settings that do not depend on the configuration.
func (f *flags) settings() (*settings, error) {
	if f.rootDir == "" {
		return nil, errors.New("--root-dir: must not be empty")
	}
	if f.mounterPath != "" {
		return nil, errors.New("--experimental-mounter-path: a program that mounts is not supported; " +
			"kubelets have said since 1.25 that the flag will be removed")
	}
	rootDir, err := filepath.Abs(f.rootDir)
	if err != nil {
		return nil, fmt.Errorf("--root-dir: %w", err)
	}
	linksDir, err := filepath.Abs(f.linksDir)
	if err != nil {
		return nil, fmt.Errorf("--container-log-links-dir: %w", err)
	}
	if err := f.lock.check(); err != nil {
		return nil, err
	}
	sources, err := f.credentials.settings(rootDir)
	if err != nil {
		return nil, err
	}
	api, err := f.api.absolute()
	if err != nil {
		return nil, err
	}
	options, err := f.node.options(f.version.reported())
	if err != nil {
		return nil, err
	}
	return &settings{rootDir: rootDir, linksDir: linksDir, hostnameOverride: f.hostnameOverride,
		runtimeCgroups: f.runtimeCgroups, lock: f.lock, api: api, machine: f.machine,
		node: options, credentials: sources}, nil
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

// defaultConfig returns the configuration of an agent without files.
func defaultConfig() *kubeletconfig.KubeletConfiguration {
	loaded, err := config.Load(nil, nil, nil)
	if err != nil {
		panic(err) // no file was read
	}
	return loaded.Config
}

// printInformation prints what the command line asks for instead of an agent, and reports whether
// it asks for anything.
func (line *commandLine) printInformation() bool {
	switch {
	case line.help:
		fmt.Printf("%s\n\nUsage:\n  seedlet [flags]\n\nFlags:\n%s", description,
			line.set.FlagUsagesWrapped(2))
	case line.flags.version == "true":
		fmt.Printf("Kubernetes %s\n", version)
	case line.flags.version == "raw":
		fmt.Printf("%#v\n", rawVersion())
	default:
		return false
	}
	return true
}

// servedFlags returns the flags as /flagz serves them: without values that may be secret.
func servedFlags(fs *pflag.FlagSet) map[string]string {
	shown := map[string]string{}
	fs.VisitAll(func(flag *pflag.Flag) {
		shown[flag.Name] = flag.Value.String()
		switch flag.Name {
		case "manifest-url-header", "manifest-url", "storage-driver-password":
			shown[flag.Name] = "CLASSIFIED"
		}
	})
	return shown
}
