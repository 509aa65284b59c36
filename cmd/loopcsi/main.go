// Loopcsi runs the project's CSI driver (realworld/csi/loopcsi), as a process of its own for tests
// and demonstrations. It needs root, and util-linux, e2fsprogs and xfsprogs.
//
//	loopcsi --dir /var/lib/loopcsi --node-id NODE \
//	  --endpoint /var/lib/kubelet/plugins/loop.csi.seedlet.dev/csi.sock \
//	  --registration /var/lib/kubelet/plugins_registry/loop.csi.seedlet.dev-reg.sock
//
// It ends on TERM or INT, and its volumes stay. With --temporary it also ends when its standard
// input does, so with the process that started it, and a guard process then unmounts all volumes
// and detaches their loop devices, even if the driver was killed. Bad arguments exit with 2.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/api/resource"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"seedlet.dev/realworld/cleanup"
	"seedlet.dev/realworld/csi/loopcsi"
)

func main() {
	s, err := readSettings(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "loopcsi:", err)
		os.Exit(2)
	}
	if err := run(s); err != nil {
		fmt.Fprintln(os.Stderr, "loopcsi:", err)
		os.Exit(1)
	}
}

// settings are the arguments of the user.
type settings struct {
	options   loopcsi.Options
	faults    map[string]loopcsi.Fault // by call
	temporary bool
}

func readSettings(args []string) (settings, error) {
	s := settings{faults: map[string]loopcsi.Fault{}}
	s.options.Secrets = map[string]string{}
	flags := flag.NewFlagSet("loopcsi", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	o := &s.options
	flags.StringVar(&o.Dir, "dir", "", "the directory of images and records")
	flags.StringVar(&o.Endpoint, "endpoint", "", "the path of the socket that serves CSI")
	flags.StringVar(&o.RegistrationEndpoint, "registration", "",
		"the path of the socket that a node agent finds the driver by")
	flags.StringVar(&o.NodeID, "node-id", "", "the ID of this node")
	flags.StringVar(&o.Name, "name", loopcsi.Name, "the name of the driver")
	flags.StringVar(&o.Zone, "zone", "", "the topology segment of this node")
	flags.Int64Var(&o.VolumesMax, "volumes-max", 0, "the limit of volumes on this node")
	flags.BoolVar(&o.Attach, "attach", false, "require ControllerPublishVolume")
	flags.BoolVar(&o.MountGroup, "mount-group", false, "announce VOLUME_MOUNT_GROUP")
	flags.BoolVar(&s.temporary, "temporary", false, "end with the standard input, and clean up")
	flags.Func("capacity", "the sum of all volumes, as in 10Gi", func(text string) error {
		quantity, err := resource.ParseQuantity(text)
		o.Capacity = quantity.Value()
		return err
	})
	flags.Func("fault", "as in NodeStageVolume:delay=2s,before=UNAVAILABLE,after=ABORTED,times=3",
		func(text string) error {
			call, fault, err := loopcsi.ParseFault(text)
			s.faults[call] = fault
			return err
		})
	flags.Func("secret", "what a call needs as its secret \"passphrase\", as in NodeStageVolume=VALUE",
		func(text string) error {
			call, value, _ := strings.Cut(text, "=")
			o.Secrets[call] = value
			return nil
		})
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return s, nil
}

func run(s settings) error {
	ended := make(chan error, 1)
	end := func(err error) {
		select {
		case ended <- err:
		default: // it already ends
		}
	}
	s.options.Log = func(line string) { fmt.Fprintln(os.Stderr, line) }
	s.options.Registered = func(status *registerapi.RegistrationStatus) {
		s.options.Log(fmt.Sprintf("registered: %t %s", status.PluginRegistered, status.Error))
		if !status.PluginRegistered {
			end(errors.New("the agent refused the driver: " + status.Error))
		}
	}
	if s.temporary {
		guard, err := cleanup.StartGuard(loopcsi.GuardKind, s.options.Dir)
		if err != nil {
			return err
		}
		defer guard.Dismiss()
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // ends when the other process does, for any reason
			end(nil)
		}()
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT) // before there are sockets to remove
	go func() {
		<-signals
		end(nil)
	}()
	driver, err := loopcsi.Start(s.options)
	if err != nil {
		return err
	}
	for call, fault := range s.faults {
		if err := driver.Inject(call, fault); err != nil {
			end(err)
		}
	}
	err = <-ended
	driver.Stop()
	return err
}
