// Command kubeletflags prints the flags of the kubelet, a line for each: its name, shorthand, type,
// whether it is deprecated, and its default. The output is cmd/seedlet/testdata/kubelet-flags.txt.
//
// It is in this module, because only here may code import k8s.io/kubernetes. It adds the flags as
// NewKubeletCommand of cmd/kubelet/app does.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/logs/json/register" // the flags of the format json
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	_ "k8s.io/kubernetes/pkg/kubelet/cadvisor" // its defaults of the flags of cAdvisor
)

func main() {
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
	flags := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	flags.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	options.NewKubeletFlags().AddFlags(flags)
	options.AddKubeletConfigFlags(flags, config)
	options.AddGlobalFlags(flags)
	flags.BoolP("help", "h", false, "")
	flags.VisitAll(func(f *pflag.Flag) {
		stays := "stays"
		if f.Deprecated != "" {
			stays = "deprecated"
		}
		fmt.Println(strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s", f.Name, orDash(f.Shorthand),
			f.Value.Type(), stays, f.DefValue)))
	})
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
