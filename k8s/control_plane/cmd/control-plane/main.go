// One executable that behaves as etcd, kube-apiserver, kube-scheduler,
// kube-controller-manager, kwok or kubectl, according to the name it is started
// under (or to its first argument). One link step instead of six.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
)

func viaCLI(build func() *cobra.Command) func() int {
	return func() int { return cli.Run(build()) }
}

func runKubectl() int {
	// kubectl builds itself from its arguments: it must know how much to say before it parses them.
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}

func runEtcd() int {
	etcdmain.Main(os.Args)
	return 0
}

func runKwok() int {
	// The Kubernetes components register a global --version flag that kwok's own would clash with.
	pflag.CommandLine = pflag.NewFlagSet("kwok", pflag.ExitOnError)
	early := pflag.NewFlagSet("early", pflag.ContinueOnError)
	early.ParseErrorsAllowlist.UnknownFlags = true
	early.Usage = func() {}
	ctx, _ := kwoklog.InitFlags(signals.SetupSignalContext(), early)
	ctx, err := kwokconfig.InitFlags(ctx, early)
	if err == nil {
		root := kwok.NewCommand(ctx)
		root.PersistentFlags().AddFlagSet(early)
		err = root.ExecuteContext(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kwok:", err)
		return 1
	}
	return 0
}

func main() {
	parts := map[string]func() int{
		"etcd":                    runEtcd,
		"kube-apiserver":          viaCLI(apiserver.NewAPIServerCommand),
		"kube-controller-manager": viaCLI(controllers.NewControllerManagerCommand),
		"kube-scheduler":          viaCLI(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"kubectl":                 runKubectl,
		"kwok":                    runKwok,
		"pki":                     runPKI,
	}
	run, ok := parts[filepath.Base(os.Args[0])]
	if !ok && len(os.Args) > 1 {
		if run, ok = parts[os.Args[1]]; ok {
			os.Args = os.Args[1:]
		}
	}
	if !ok {
		fmt.Fprintln(os.Stderr, "usage: etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubectl|kwok|pki [flags]")
		os.Exit(2)
	}
	os.Exit(run())
}
