package main

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/config"
)

// The flags that set a field of the configuration, and how they are bound to it.

// deprecation follows the name of a deprecated flag in the warning about it.
const deprecation = "set its field in the file of --config instead"

// addConfigFlags adds the flags that set fields of a configuration, which has its defaults.
func addConfigFlags(flags *pflag.FlagSet, c *kubeletconfig.KubeletConfiguration) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, f := range configFlags {
		bindField(fs, f, c)
	}
	logsapi.AddFlags(&c.Logging, fs)
	for _, f := range loggingFlags {
		fs.Lookup(f.name).Usage = f.usage
	}
	for _, f := range slices.Concat(configFlags, loggingFlags) {
		if !f.stays {
			fs.Lookup(f.name).Deprecated = deprecation // MarkDeprecated would hide it from --help
		}
	}
	flags.AddFlagSet(fs)
}

// bindField adds a flag with the type of its field. Its default is the value that the field has.
func bindField(fs *pflag.FlagSet, f configFlag, c *kubeletconfig.KubeletConfiguration) {
	field := config.FieldValue(c, f.field).Addr()
	if field.Elem().Kind() == reflect.String {
		field = field.Convert(reflect.TypeFor[*string]()) // of a type of its own
	}
	switch p := field.Interface().(type) {
	case *bool:
		fs.BoolVar(p, f.name, *p, f.usage)
	case *int32:
		fs.Int32Var(p, f.name, *p, f.usage)
	case *int64:
		fs.Int64Var(p, f.name, *p, f.usage)
	case *metav1.Duration:
		fs.DurationVar(&p.Duration, f.name, p.Duration, f.usage)
	case *[]string:
		fs.StringSliceVar(p, f.name, *p, f.usage)
	case *string:
		if f.name == "address" || f.name == "healthz-bind-address" {
			fs.Var(&ipValue{p}, f.name, f.usage)
			return
		}
		fs.StringVar(p, f.name, *p, f.usage)
	default:
		fs.Var(fieldValue(f.name, p), f.name, f.usage)
	}
}

// fieldValue returns the flag's value for a field that is a map or a list of objects.
func fieldValue(name string, field any) pflag.Value {
	switch p := field.(type) {
	case *map[string]bool:
		return cliflag.NewMapStringBool(p)
	case *map[string][]string:
		return cliflag.NewColonSeparatedMultimapStringString(p)
	case *[]v1.Taint:
		return &taintsValue{p}
	case *[]kubeletconfig.MemoryReservation:
		return &memoryValue{list: p}
	case *map[string]string:
		switch name {
		case "eviction-hard", "eviction-soft":
			return cliflag.NewLangleSeparatedMapStringString(p)
		case "cpu-manager-policy-options":
			return cliflag.NewMapStringStringNoSplit(p)
		}
		return cliflag.NewMapStringString(p)
	}
	panic(fmt.Sprintf("--%s: no flag can set a %T", name, field))
}

// addCadvisorFlags adds the flags that the kubelet has from cAdvisor. Nothing reads their values.
func addCadvisorFlags(flags *pflag.FlagSet) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, f := range cadvisorFlags {
		switch value := f.value.(type) {
		case bool:
			fs.Bool(f.name, value, f.usage)
		case int:
			fs.Int(f.name, value, f.usage)
		case time.Duration:
			fs.Duration(f.name, value, f.usage)
		case string:
			fs.String(f.name, value, f.usage)
		}
	}
	fs.VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "housekeeping-interval" {
			flag.Deprecated = "it is a flag of cAdvisor, and has no effect"
		}
	})
	flags.AddFlagSet(fs)
}

// overrideConfig sets the fields whose flags are in the arguments. Flags override files, so they
// are parsed once more over the loaded configuration. Feature gates of the files stay set if the
// flag does not have them, as in the kubelet (kubernetes#56171).
func overrideConfig(args []string, c *kubeletconfig.KubeletConfiguration) error {
	gates := maps.Clone(c.FeatureGates)
	line := newCommandLine(c)
	line.set.SetOutput(io.Discard) // the warnings have been written
	if err := line.set.Parse(args); err != nil {
		return err
	}
	config.SetMissingGates(c, gates)
	for name, path := range map[string]*string{
		"pod-manifest-path": &c.StaticPodPath, "tls-cert-file": &c.TLSCertFile,
		"tls-private-key-file": &c.TLSPrivateKeyFile,
		"client-ca-file":       &c.Authentication.X509.ClientCAFile,
	} {
		if !line.set.Changed(name) || *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path) // relative to the working directory
		if err != nil {
			return fmt.Errorf("--%s: %w", name, err)
		}
		*path = absolute
	}
	return nil
}
