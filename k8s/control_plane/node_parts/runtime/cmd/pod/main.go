// What runs in the smallest pods: "pause" does nothing, as in the container that
// holds a pod together; "spin" keeps one core busy.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "spin" {
		go func() {
			for {
			}
		}()
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT)
	<-asked
}
