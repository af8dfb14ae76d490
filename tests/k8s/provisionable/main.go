// Reads a PodList in JSON and writes the names of the pods that Karpenter would add nodes for, by Karpenter's own rule.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
)

func main() {
	var pods v1.PodList
	if err := json.NewDecoder(os.Stdin).Decode(&pods); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for i := range pods.Items {
		if podutils.IsProvisionable(&pods.Items[i]) {
			fmt.Println(pods.Items[i].Name)
		}
	}
}
