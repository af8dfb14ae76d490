"""Jobs whose GPUs may be on other machines than their CPU, and the policies that place them."""
